"""A change of the running join: another query continues it on another checkpoint."""
