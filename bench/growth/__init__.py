"""How fast the join stays while its state grows."""
