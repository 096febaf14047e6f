"""One run of the query: its preparation and start, its watermark, and its statistics."""
