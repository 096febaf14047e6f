"""A change of a join: from the checkpoint of the old query to a new one. Pure."""
