"""Care for a checkpoint at rest: verify, back up, restore, repair."""
