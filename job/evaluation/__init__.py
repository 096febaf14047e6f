"""Evaluates Spark SQL expressions in plain Python: exactly as Spark 4.3, or NotExactError."""
