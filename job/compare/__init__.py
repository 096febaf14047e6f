"""`streamjoin compare`: differences between the results of two queries of one join."""
