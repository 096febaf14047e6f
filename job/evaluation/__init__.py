"""Spark SQL expressions evaluated in plain Python, exactly as Spark 4.3 does or refused by name."""
