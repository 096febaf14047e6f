"""Spark SQL without Spark: its grammar, its types, and the errors of its analysis."""
