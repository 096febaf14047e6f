"""Everything Spark will be told, decided before Spark is there."""
