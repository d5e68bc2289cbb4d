"""Clustering of things that several views describe, with views missing."""
