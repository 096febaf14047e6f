"""A change of a join: a new query continues an old one on another checkpoint. Pure."""
