"""Spark SQL without Spark: how it is written, which types it has, what Spark refuses."""
