"""What a dead letter says of itself, in headers of the shape that Kafka Connect gives its own.

Key, value and headers of a dead letter are those of the original record; these are added.
"""

from collections.abc import Sequence
from dataclasses import dataclass

PREFIX = "__streamjoin.errors."
TOPIC = f"{PREFIX}topic"
PARTITION = f"{PREFIX}partition"
OFFSET = f"{PREFIX}offset"
TIMESTAMP = f"{PREFIX}timestamp"
"""Kafka's own, of the original record, in epoch milliseconds."""
SIDE = f"{PREFIX}side"
"""left, right, or output: a result, which has no original record."""
REASON = f"{PREFIX}reason"
MESSAGE = f"{PREFIX}message"
QUERY = f"{PREFIX}query"
OMITTED_BYTES = f"{PREFIX}omitted.bytes"
"""There where the value (and what else was too long) had to be left out: how many bytes it had."""

REPLAYED_FROM = "__streamjoin.replayed.from"
"""On a record that was put back: the dead letter's topic/partition/offset. It stays on the record
when that fails again."""

REPLAYED = "__streamjoin.replayed"
"""The only header of a note in the dead-letter topic: the letter at this place was put back."""

NULL_KEY = "null_key"
LATE = "late"
VALUE_TOO_LARGE = "value_too_large"
"""Of a result that the output topic does not take. It comes without its value."""

Headers = Sequence[tuple[str, bytes | None]]


@dataclass(frozen=True)
class DeadLetter:
    """One record of the dead-letter topic."""

    place: str
    """topic/partition/offset in the dead-letter topic."""
    key: bytes | None
    value: bytes | None
    original_headers: Headers
    topic: str
    partition: int
    offset: int
    timestamp_ms: int | None
    side: str
    reason: str
    message: str
    query: str
    is_whole: bool
    """Whether key and value are those of the original record."""

    @property
    def can_be_replayed(self) -> bool:
        """A result comes again by itself only; what is not whole cannot be put back."""
        return self.is_whole and self.side in {"left", "right"}

    @property
    def replayed_headers(self) -> Headers:
        return [*self.original_headers, (REPLAYED_FROM, self.place.encode())]


def dead_letter(
    place: str, key: bytes | None, value: bytes | None, headers: Headers
) -> DeadLetter | None:
    """None for a record without our headers: somebody else's."""
    ours = {name: (content or b"").decode(errors="replace") for name, content in headers}
    if not {TOPIC, PARTITION, OFFSET, SIDE, REASON} <= ours.keys():
        return None
    return DeadLetter(
        place=place,
        key=key,
        value=value,
        original_headers=[pair for pair in headers if not pair[0].startswith(PREFIX)],
        topic=ours[TOPIC],
        partition=int(ours[PARTITION]),
        offset=int(ours[OFFSET]),
        timestamp_ms=int(ours[TIMESTAMP]) if ours.get(TIMESTAMP) else None,
        side=ours[SIDE],
        reason=ours[REASON],
        message=ours.get(MESSAGE, ""),
        query=ours.get(QUERY, ""),
        is_whole=OMITTED_BYTES not in ours,
    )
