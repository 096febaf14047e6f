"""The position of a record in Kafka as one BIGINT: partition * 2^48 + offset.

With several topics on a side, "partition" is the number that also contains the index of the topic
(job/spec/source_topics.py).

Spark carries the position of each row through the join; result ids, dead letters and lookups read
partition and offset from it.
"""

from job.spec.sides import Side

_OFFSET_BITS = 48
_OFFSET_MASK = (1 << _OFFSET_BITS) - 1


def position_column(side: Side) -> str:
    """The column of the dataflow with the position of the side's record."""
    return f"position_{side}"


def position_sql(partition: str, offset: str) -> str:
    return f"shiftleft(cast({partition} AS BIGINT), {_OFFSET_BITS}) + {offset}"


def partition_sql(position: str) -> str:
    return f"shiftright({position}, {_OFFSET_BITS})"


def offset_sql(position: str) -> str:
    return f"({position} & {_OFFSET_MASK})"


def partition_and_offset(position: int) -> tuple[int, int]:
    return position >> _OFFSET_BITS, position & _OFFSET_MASK
