"""The same join in other systems, measured next to Streamjoin."""
