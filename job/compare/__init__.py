"""`streamjoin compare`: how the results of two queries of one join differ."""
