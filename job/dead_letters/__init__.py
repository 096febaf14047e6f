"""Records that did not get into the join: what is said of them, and how they come back."""
