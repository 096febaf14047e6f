"""The plan of a join: all settings of the query, derived from the spec without Spark."""
