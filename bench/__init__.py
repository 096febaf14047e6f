"""How fast the join is, measured."""
