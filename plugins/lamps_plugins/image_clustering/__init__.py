"""Clustering of images with the help of texts about them."""
