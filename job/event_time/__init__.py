"""Event time of the partitions of both topics: the watermark, and the order of reading."""
