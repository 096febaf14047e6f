"""The same join by other means, to be measured beside Streamjoin."""
