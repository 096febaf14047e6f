"""From records to results in Spark SQL: one DataFrame per step."""
