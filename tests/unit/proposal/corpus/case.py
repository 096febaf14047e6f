"""A pair of topics, and what is right for it."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from job.proposal.sample import Sample
from job.semantics.input_records import InputRecord
from job.spec.sides import Side

T0 = 1_767_225_600
"""2026-01-01T00:00:00Z, in epoch seconds."""

Value = dict[str, Any]
ID = b"\0\0\0\0\x81"
"""The id 129 of a schema in Confluent's wire format."""


@dataclass(frozen=True)
class Topic:
    name: str
    records: list[InputRecord]
    types: dict[str, str] = field(default_factory=dict)
    """Types of columns of a registered schema, in DDL. Empty: the values show them."""
    keys: list[bytes | None] = field(default_factory=list)
    """Empty: those of `records`."""

    @property
    def sample(self) -> Sample:
        texts = (record.key for record in self.records)
        keys = self.keys or [None if text is None else text.encode() for text in texts]
        return Sample(self.name, self.records, keys)


@dataclass(frozen=True)
class Case:
    name: str
    left: Topic
    right: Topic
    key: tuple[str, str] | None = None
    """Left and right key, as the lists of the spec. None: no key is proposed."""
    times: tuple[str, str] = ("at", "at")
    after: str = "10 seconds"
    """The window after the left row."""
    results: int = 20
    refused: str = ""
    """Part of the message, if no key is proposed."""
    comments: tuple[str, ...] = ()
    """Parts of the spec."""
    lacks: tuple[str, ...] = ()
    """Not parts of the spec."""
    compacted: frozenset[Side] = frozenset()
    """Sides whose topic is compacted."""
    registered: dict[str, Any] | None = None
    """JSON Schema of both topics."""


def topic(
    name: str,
    value: Callable[[int], Value | None],
    count: int = 20,
    key: Callable[[int], str] | None = None,
    late: int = 0,
    **types: str,
) -> Topic:
    """Record `n` is written `n` + `late` seconds after T0, each second one."""
    records = [
        InputRecord(
            None if (row := value(n)) is None else json.dumps(row),
            n,
            key=None if key is None else key(n),
            timestamp_us=(T0 + n + late) * 1_000_000,
        )
        for n in range(count)
    ]
    return Topic(name, records, types)


def raw_topic(
    name: str,
    value: Callable[[int], bytes],
    key: Callable[[int], bytes | None] = lambda _: None,
    late: int = 0,
) -> Topic:
    """20 records with these bytes, one a second as those of `topic`."""
    keys = [key(n) for n in range(20)]
    records = [
        InputRecord(
            value(n),
            n,
            key=None if keys[n] is None else keys[n].decode(errors="replace"),
            timestamp_us=(T0 + n + late) * 1_000_000,
        )
        for n in range(20)
    ]
    return Topic(name, records, {}, keys)


def iso(n: int, late: int = 0) -> str:
    return f"{datetime.fromtimestamp(T0 + n + late, UTC):%Y-%m-%dT%H:%M:%SZ}"


def ms(n: int, late: int = 0) -> int:
    return (T0 + n + late) * 1_000


def mixed(n: int, count: int = 20) -> int:
    """A permutation of the numbers below 20 or 30."""
    return n * 7 % count


def uuid(n: int) -> str:
    return f"{n * 2_654_435_761 % 2**32:08x}-0000-4000-8000-{n:012x}"
