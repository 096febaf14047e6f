"""Groups of `streamjoin` commands, and what all commands share."""
