"""What a dead letter says of itself, in headers of the shape that Kafka Connect gives its own.

Key, value and headers of a dead letter are those of the original record; these are added behind
them. A header of the original record that begins with RESERVED is written with ORIGINAL before its
name, so a producer cannot write a header that the commands take for one of the job.
"""

from collections.abc import Sequence
from dataclasses import dataclass

RESERVED = "__streamjoin."
ORIGINAL = f"{RESERVED}original."
"""Prefix of a header that the producer of the original record had named with RESERVED."""

PREFIX = f"{RESERVED}errors."
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

REPLAYED_FROM = f"{RESERVED}replayed.from"
"""On a replayed record: the dead letter's topic/partition/offset. If the record fails again, the
new dead letter has this header with ORIGINAL before its name."""

REPLAYED = f"{RESERVED}replayed"
"""Only header of a note in the dead-letter topic: the letter at this place was replayed."""

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
    """None for a record without the job's headers: another program has written it."""
    # The job adds its headers behind those of the original record, TOPIC first.
    begin = max((n for n, (name, _) in enumerate(headers) if name == TOPIC), default=len(headers))
    ours = {name: _text(content) for name, content in headers[begin:]}
    if not {TOPIC, PARTITION, OFFSET, SIDE, REASON} <= ours.keys():
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
    except ValueError:  # a number that the job has not written
        return None


def replayed_place(key: bytes | None, value: bytes | None, headers: Headers) -> str | None:
    """Place of the letter that this record notes as replayed; None if the record is no note."""
    if key is None and value is None and [name for name, _ in headers] == [REPLAYED]:
        return _text(headers[0][1])
    return None


def _text(content: bytes | None) -> str:
    return (content or b"").decode(errors="replace")
