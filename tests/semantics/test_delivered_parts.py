"""DeliveredParts.java decides as the specification in interval_protocol.py."""

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from job.delivery.commit_protocol import (
    NO_BATCH,
    Marker,
    TakenOverError,
    UnavailableError,
)
from job.delivery.delivered import Fence
from job.delivery.markers import Record as CommitRecord
from job.delivery.markers import decoded, encoded, encoded_fence, fence_key, marker_key
from job.spark.java_classes import java_class
from tests.unit.delivery.interval_protocol import (
    INTERVAL,
    Batch,
    DisagreementError,
    Opened,
    Opening,
    Part,
    SlotContent,
    decided,
    opened,
)

TOPIC = "joined.commits"
NAME = "joined"
PARTITION = 5
OFFSET = 40
SLOT = "3"
MARKER_KEY = marker_key(NAME, SLOT)
CASES = 500
"""The first 89 make all transitions between lines of the specification that 6,000 make, and get all
its answers."""
HISTORIES = 60
"""Likewise the first 32 of 1,500."""
KINDS = {DisagreementError: "disagreement", TakenOverError: "taken_over"}


@dataclass(frozen=True)
class Refused:
    kind: str
    message: str


Outcome = Opened | Refused | None
Record = Marker | Part | Fence


def key(record: Record) -> bytes:
    if isinstance(record, Fence):
        return fence_key(NAME, SLOT)
    if isinstance(record, Marker):
        return MARKER_KEY
    return MARKER_KEY + f"/{record.number}".encode()


def value(record: Record) -> bytes:
    if isinstance(record, Marker):
        return encoded(record)
    if isinstance(record, Fence):
        return encoded_fence(record)
    return json.dumps(
        {
            "format": 1,
            "query_id": record.query_id,
            "batch_id": record.batch_id,
            "watermark_ms": 5,
            "ids": sorted(record.ids),
        }
    ).encode()


def content(records: Sequence[Record]) -> SlotContent:
    markers = [record for record in records if isinstance(record, Marker)]
    parts = tuple(record for record in records if isinstance(record, Part))
    fences = tuple(record for record in records if isinstance(record, Fence))
    return SlotContent(markers[-1] if markers else None, parts, fences)


def specified(opening: Opening, records: Sequence[Record]) -> tuple[Outcome, Outcome]:
    def outcome(decide: Any) -> Outcome:
        try:
            known: Outcome = decide(opening, content(records))
        except (DisagreementError, TakenOverError) as error:
            return Refused(KINDS[type(error)], str(error))
        return known

    return outcome(decided), outcome(opened)


def in_java(spark: SparkSession, opening: Opening, records: Sequence[Record]) -> Any:
    batch = opening.batch
    arguments = (batch.query_id, batch.batch_id, batch.fingerprint, batch.since)
    parts = java_class(spark, "DeliveredParts")(
        *(TOPIC, PARTITION, MARKER_KEY.decode(), *arguments, opening.repeats, opening.fence)
    )
    # Records of other joins, and of another slot with the same first digit.
    foreign = [marker_key("other", "3"), marker_key(NAME, "31"), marker_key(NAME, "31") + b"/7"]
    for other in (*foreign, fence_key("other", "3"), fence_key(NAME, "31")):
        parts.read(OFFSET, other, b"{}")
    for record in records:
        parts.read(OFFSET, key(record), value(record))
    return parts


def java_outcome(parts: Any) -> tuple[Outcome, Outcome]:
    def outcome(decide: Any) -> Outcome:
        try:
            is_delivered: bool = decide()
        except Py4JJavaError as error:
            refusal = error.java_exception
            return Refused(str(refusal.kind()), str(refusal.getMessage()))
        return Opened(is_delivered, frozenset(parts.ids()), parts.nextPart())

    first, second = outcome(parts.isDecided), outcome(parts.isDelivered)
    # Before other producers are fenced, only a batch that is delivered is decided.
    is_open = isinstance(first, Opened) and not first.is_delivered
    return None if is_open else first, second


def generated(chance: random.Random) -> tuple[Opening, list[Record]]:
    """Records that are mostly valid in a slot, so that each decision is made in many cases."""
    next_batch = chance.randrange(4)
    is_interval = chance.random() < 0.4
    fingerprint = INTERVAL if is_interval else chance.choice(["f", "g"])
    repeats = next_batch - chance.randrange(2) if chance.random() < 0.5 else None
    since = chance.choice([0, 0, next_batch])
    opening = Opening(
        Batch(next_batch, fingerprint, since, "q"), repeats, fence=chance.randrange(3)
    )
    records: list[Record] = []
    for _ in range(chance.randrange(7)):
        query = chance.choices(["q", "other"], [9, 1])[0]
        batch_id = next_batch + chance.choices([-2, -1, 0, 1], [2, 6, 4, 1])[0]
        if chance.random() < 0.1:
            records.append(Fence(query, 1 + chance.randrange(3)))
        elif chance.random() < 0.5:
            ids = {f'a/0/{chance.randrange(9)}|Grüße/"1/2' for _ in range(chance.randrange(4))}
            records.append(Part(query, batch_id, chance.randrange(3), frozenset(ids)))
        else:
            kind = chance.choices([fingerprint, "f", INTERVAL], [6, 2, 3])[0]
            records.append(Marker(max(batch_id, NO_BATCH), kind, query))
    return opening, records


def test_java_decides_as_the_specification_on_generated_records(spark: SparkSession) -> None:
    outcomes = set()
    for number in range(CASES):
        opening, records = generated(random.Random(number))
        expected = specified(opening, records)
        assert expected == java_outcome(in_java(spark, opening, records)), (opening, records)
        outcomes |= {_kind(outcome) for outcome in expected}
    refused = {"disagreement", "fenced", "taken_over"}
    assert {*refused, "delivered", "new", "recovered", None} == outcomes


def history(chance: random.Random) -> tuple[Opening, list[Record]]:
    """Consecutive batches and intervals of a query. The last one may be cut, and another run may
    have fenced the run of the opening."""
    records: list[Record] = [Marker(NO_BATCH, "", "q")]
    batches, fence = chance.randrange(1, 5), 0
    for batch_id in range(batches):
        is_interval = chance.random() < 0.6
        if chance.random() < 0.3:
            fence += 1
            records.append(Fence("q", fence))
        if is_interval:
            numbers = range(chance.randrange(4))
            records += [Part("q", batch_id, n, frozenset({f"{batch_id}|{n}"})) for n in numbers]
        if batch_id < batches - 1 or chance.random() < 0.5:
            records.append(Marker(batch_id, INTERVAL if is_interval else "f", "q"))
    repeats = chance.choice([None, batches - 1])
    batch_id = batches - 1 if repeats is not None else chance.choice([batches - 1, batches])
    fingerprint = chance.choice(["f", INTERVAL])
    if chance.random() < 0.3:
        records.append(Fence("q", fence + 1))
        if chance.random() < 0.5:
            records.append(Marker(batch_id, fingerprint, "q"))
    return Opening(Batch(batch_id, fingerprint, 0, "q"), repeats, fence), records


def test_end_of_a_partition_is_enough_if_it_is_complete(spark: SparkSession) -> None:
    complete = 0
    for number in range(HISTORIES):
        opening, records = history(random.Random(number))
        for first in range(len(records)):
            parts = in_java(spark, opening, records[first:])
            if parts.isComplete():
                complete += 1
                assert specified(opening, records) == java_outcome(parts), (opening, records, first)
    assert complete > HISTORIES


def _kind(outcome: Outcome) -> object:
    match outcome:
        case Refused("disagreement", message) if "this run began with fence" in message:
            return "fenced"
        case Refused(kind=kind):
            return kind
        case Opened(is_delivered=True):
            return "delivered"
        case Opened(ids=ids):
            return "recovered" if ids else "new"
    return outcome


FOREIGN = [
    b"",
    b"hello",
    b"[]",
    b"[" * 100_000,
    b'{"format": 1}',
    b'{"format": 1, "batch_id": null, "fingerprint": "f", "query_id": "q"}',
    b'{"format": 1, "batch_id": true, "fingerprint": "f", "query_id": "q"}',
    b'{"format": 1, "batch_id": "7", "fingerprint": "f", "query_id": "q"}',
    b'{"format": 1, "batch_id": 7.5, "fingerprint": "f", "query_id": "q"}',
    b'{"format": 1, "batch_id": 7, "fingerprint": "f", "query_id": "q"} and more',
    b'{"format": 1, "batch_id": 7, "query_id": "q"}',
    b'{"format": 1, "batch_id": 7, "fingerprint": 5, "query_id": "q"}',
    b'{"format": 1, "batch_id": 7, "fingerprint": "f"}',
    b'{"format": 1, "batch_id": 7, "fingerprint": "f", "query_id": null}',
    "Grüße".encode("latin-1"),
]
"""Values that are no marker."""
OPENING = Opening(Batch(8, "g", 0, "q"), None, fence=0)


def refusal(parts: Any) -> Refused:
    outcome, other = java_outcome(parts)
    assert isinstance(outcome, Refused)
    assert outcome == other
    return outcome


@pytest.mark.parametrize("foreign", [None, *FOREIGN], ids=lambda value: str(value)[:60])
def test_record_that_is_no_marker_is_refused_as_by_the_driver(
    spark: SparkSession, foreign: bytes | None
) -> None:
    marker = Marker(7, "f", "q")
    with pytest.raises(UnavailableError) as by_the_driver:
        decoded(CommitRecord(TOPIC, PARTITION, 41, key(marker), foreign or b""))
    parts = in_java(spark, OPENING, [marker])
    parts.read(41, key(marker), foreign)
    # The records of other keys do not replace it.
    parts.read(42, key(Fence("q", 0)), value(Fence("q", 0)))
    parts.read(43, marker_key(NAME, "31"), value(marker))

    assert Refused("unavailable", str(by_the_driver.value)) == refusal(parts)
    assert (
        f"at offset 41 of the commit topic {TOPIC}, partition {PARTITION}, is"
        in refusal(parts).message
    )
    # The remedy of the message.
    parts.read(44, key(marker), value(marker))
    assert (None, Opened(next_part=0)) == java_outcome(parts)


@pytest.mark.parametrize(
    ("suffix", "foreign", "content"),
    [
        ("/fence", None, "a tombstone"),
        ("/fence", b'{"query_id": "q"}', "17 bytes without a fence number"),
        ("/fence", b'{"number": 5}', "13 bytes without a query id"),
        ("/2", None, "a tombstone"),
        ("/2", b'{"query_id": "q", "ids": []}', "28 bytes without a batch"),
        ("/2", b'{"batch_id": 8, "ids": []}', "26 bytes without a query id"),
        ("/2", b'{"query_id": "q", "batch_id": 8}', "32 bytes without ids"),
        *(
            (
                suffix,
                b'{"query_id": "q", "batch_id": 8, "ids": []}',
                "43 bytes without the number of a part in its key",
            )
            for suffix in ("/x", "/2/3", "/99999999999", "/-1", "/")
        ),
    ],
)
def test_record_that_is_no_part_and_no_fence_is_refused(
    spark: SparkSession, suffix: str, foreign: bytes | None, content: str
) -> None:
    parts = in_java(spark, OPENING, [Marker(7, "f", "q")])
    record_key = MARKER_KEY + suffix.encode()
    parts.read(41, record_key, foreign)

    found = refusal(parts)
    assert "unavailable" == found.kind
    assert found.message.startswith(
        f"the newest record with the key {record_key.decode()}, at offset 41 of the commit topic "
        f"{TOPIC}, partition {PARTITION}, is {content}. Another program has written it"
    )


OTHER_FORMAT = b'{"format": 2, "batch_id": 7, "fingerprint": "f", "query_id": "q"}'


def test_marker_of_another_format_is_refused_as_by_the_driver(spark: SparkSession) -> None:
    with pytest.raises(UnavailableError, match="has the format 2, and this version") as found:
        decoded(CommitRecord(TOPIC, PARTITION, 41, MARKER_KEY, OTHER_FORMAT))
    parts = in_java(spark, OPENING, [])
    parts.read(41, MARKER_KEY, OTHER_FORMAT)
    assert Refused("unavailable", str(found.value)) == refusal(parts)


@pytest.mark.parametrize("suffix", ["/2", "/fence"])
def test_part_and_fence_of_another_format_are_refused(spark: SparkSession, suffix: str) -> None:
    parts = in_java(spark, OPENING, [Marker(7, "f", "q")])
    parts.read(41, MARKER_KEY + suffix.encode(), OTHER_FORMAT)
    assert "Start the query with the version that has written it" in refusal(parts).message


@pytest.mark.parametrize(
    "record",
    [Marker(7, "f", "q"), Marker(7, INTERVAL, "q"), Part("q", 7, 12, frozenset({"a|b", "ü|"}))],
)
def test_java_writes_the_records_that_the_specification_names(
    spark: SparkSession, record: Marker | Part
) -> None:
    java = java_class(spark, "DeliveredParts")
    if isinstance(record, Marker):
        written = java.marker(record.query_id, record.batch_id, record.fingerprint)
    else:
        ids = spark._jvm.java.util.ArrayList()  # type: ignore[union-attr]
        for row_id in sorted(record.ids):
            ids.add(row_id)
        written = java.part(record.query_id, record.batch_id, 5, ids)
        assert key(record).decode() == java.partKey(MARKER_KEY.decode(), record.number)
    assert json.loads(value(record)) == json.loads(bytes(written))


def test_java_finds_a_fence_by_the_key_of_the_specification(spark: SparkSession) -> None:
    fence = java_class(spark, "DeliveredParts").fenceKey(MARKER_KEY.decode())
    assert fence_key(NAME, SLOT).decode() == fence
