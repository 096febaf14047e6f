"""Headers of a dead letter, in the style of Kafka Connect.

A dead letter has the key, value and headers of the original record, followed by these headers. A
header of the original record whose name begins with RESERVED gets the prefix ORIGINAL, so a
producer cannot forge a header of the job.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from job.plan.result_id import ID_HEADER

RESERVED = "__streamjoin."
ORIGINAL = f"{RESERVED}original."
"""Prefix of a header of the original record whose name begins with RESERVED."""

PREFIX = f"{RESERVED}errors."
TOPIC = f"{PREFIX}topic"
PARTITION = f"{PREFIX}partition"
OFFSET = f"{PREFIX}offset"
TIMESTAMP = f"{PREFIX}timestamp"
"""Kafka's timestamp of the original record, in epoch milliseconds."""
SIDE = f"{PREFIX}side"
"""left, right, or output for a result, which has no original record."""
REASON = f"{PREFIX}reason"
MESSAGE = f"{PREFIX}message"
QUERY = f"{PREFIX}query"
OMITTED_BYTES = f"{PREFIX}omitted.bytes"
"""Size of the value in bytes. Set if the value (if necessary also key and headers) is omitted,
because the letter would be too large."""

REPLAYED_FROM = f"{RESERVED}replayed.from"
"""On a replayed record: the dead letter's topic/partition/offset. If the record fails again, the
new dead letter has this header with ORIGINAL before its name."""

REPLAYED = f"{RESERVED}replayed"
"""Only header of a record that marks the letter at this place as replayed."""

NULL_KEY = "null_key"
LATE = "late"
VALUE_TOO_LARGE = "value_too_large"
"""Reason of a result that is too large for the output topic. The letter has no value."""

Headers = Sequence[tuple[str, bytes | None]]


@dataclass(frozen=True)
class DeadLetter:
    """One record of the dead-letter topic."""

    place: str
    """topic/partition/offset of the letter in the dead-letter topic."""
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
    result_id: str | None = None
    """`streamjoin-id` of a result that was not written. None: the letter is that of a record."""

    @property
    def can_be_replayed(self) -> bool:
        """Whether there is an original record, and the letter contains all of it."""
        return self.is_whole and self.side in {"left", "right"}

    @property
    def replayed_headers(self) -> Headers:
        return [*self.original_headers, (REPLAYED_FROM, self.place.encode())]


def dead_letter(
    place: str, key: bytes | None, value: bytes | None, headers: Headers
) -> DeadLetter | None:
    """None for a record without the job's headers: another program has written it."""
    # The job adds its headers after those of the original record, TOPIC first.
    begin = max((n for n, (name, _) in enumerate(headers) if name == TOPIC), default=len(headers))
    added = {name: _text(content) for name, content in headers[begin:]}
    if not {TOPIC, PARTITION, OFFSET, SIDE, REASON} <= added.keys():
        return None
    try:
        return DeadLetter(
            place=place,
            key=key,
            value=value,
            original_headers=[
                *((name.removeprefix(ORIGINAL), content) for name, content in headers[:begin]),
                *(pair for pair in headers[begin:] if not pair[0].startswith(PREFIX)),
            ],
            topic=added[TOPIC],
            partition=int(added[PARTITION]),
            offset=int(added[OFFSET]),
            timestamp_ms=int(added[TIMESTAMP]) if added.get(TIMESTAMP) else None,
            side=added[SIDE],
            reason=added[REASON],
            message=added.get(MESSAGE, ""),
            query=added.get(QUERY, ""),
            is_whole=OMITTED_BYTES not in added,
            result_id=added.get(ID_HEADER) if added[SIDE] == "output" else None,
        )
    except ValueError:  # a header that the job did not write
        return None


def replayed_place(key: bytes | None, value: bytes | None, headers: Headers) -> str | None:
    """Place of the letter that this record marks as replayed. None: the record marks no letter."""
    if key is None and value is None and [name for name, _ in headers] == [REPLAYED]:
        return _text(headers[0][1])
    return None


def _text(content: bytes | None) -> str:
    return (content or b"").decode(errors="replace")
