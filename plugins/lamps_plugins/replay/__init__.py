"""Recorded curves as a problem family."""
