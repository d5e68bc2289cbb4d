"""Landmark tables of past searches, from which allocation policies are trained."""
