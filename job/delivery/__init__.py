"""How results get to the output topic: exactly once, or at least once."""
