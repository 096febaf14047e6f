"""From records to results, as Spark SQL: one DataFrame per step."""
