"""Measures how fast the join is."""
