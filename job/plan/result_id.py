"""The id of a result: the places of its records in Kafka. Pure.

`impressions/0/17|clicks/2/5`: topic, partition and offset of the left and of the right record. The
part of an absent side is empty. A repeated result has the same id. In a join with a table the id
has only the record of the stream, and in a join that picks only the left one: `orders/0/17|`.
"""

import re
from collections.abc import Mapping
from typing import NamedTuple

from job.spec.sides import SIDES, Side

ID_HEADER = "streamjoin-id"
"""Header of an output record."""

MATCH_HEADER = "streamjoin-match"
"""Header with the place of the record that an id does not have. Null: the result has none."""

_PLACE = re.compile(r"([A-Za-z0-9._-]+)/([0-9]+)/([0-9]+)")


class Place(NamedTuple):
    topic: str
    partition: int
    offset: int

    def __str__(self) -> str:
        return f"{self.topic}/{self.partition}/{self.offset}"


def places(result_id: str) -> Mapping[Side, Place] | None:
    """The record of each side that the result has. None: the text is not an id."""
    parts = result_id.split("|")
    if len(parts) != len(SIDES) or not any(parts):
        return None
    records: dict[Side, Place] = {}
    for side, part in zip(SIDES, parts, strict=True):
        if not part:
            continue
        if (record := parsed_place(part)) is None:
            return None
        records[side] = record
    return records


def parsed_place(text: str) -> Place | None:
    """None: the text is not a place."""
    match = _PLACE.fullmatch(text)
    if match is None:
        return None
    topic, partition, offset = match.groups()
    return Place(topic, int(partition), int(offset))


def is_unmatched_id(column: str) -> str:
    """SQL: whether the id in `column` is that of an unmatched row, in a join that emits these."""
    return f"(startswith({column}, '|') OR endswith({column}, '|'))"
