"""Measures the join while its state grows."""
