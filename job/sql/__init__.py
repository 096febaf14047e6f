"""Spark SQL without Spark: how expressions are written, which types they have, what Spark refuses."""
