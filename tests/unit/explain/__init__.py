"""`explain`: the causes and sentences of the records of a key."""
