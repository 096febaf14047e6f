"""Event time of the partitions of both topics: the watermark it gives, and the order of reading."""
