"""The Spark SQL of a spec: its analysis, and its values on rows, without a Spark session."""
