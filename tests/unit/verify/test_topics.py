"""Which part of the topics is read, and what is known about the rest."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any, cast

import pytest
from confluent_kafka import Message

from job.compare.outputs import AHEAD_MS
from job.kafka.clients import AdminClient
from job.spec.durations import milliseconds
from job.verify import topics
from job.verify.joined import NO_EVENT_TIME, InputsRead
from job.verify.topics import InputParts, TopicPart, input_parts, output_part, written_results
from tests.unit.specs import plan

AHEAD = milliseconds(timedelta(hours=1))
# Offsets by topic and partition: the first one, the end, and the first since a time.
EARLIEST = {"impressions": {0: 0, 1: 7}, "clicks": {0: 0}, "attributed": {0: 3}}
ENDS = {"impressions": {0: 50, 1: 20}, "clicks": {0: 40}, "attributed": {0: 90}}
CLIENT = cast("AdminClient", None)


@pytest.fixture(autouse=True)
def kafka(monkeypatch: pytest.MonkeyPatch) -> None:
    """A record a millisecond in each partition, with its offset as timestamp."""

    def at(_: AdminClient, ms: int, ends: dict[int, int], topic: str) -> dict[int, int]:
        return {p: min(max(ms, EARLIEST[topic][p]), end) for p, end in ends.items()}

    monkeypatch.setattr(topics, "offsets", lambda _, name, *__: (EARLIEST[name], ENDS[name]))
    monkeypatch.setattr(topics, "_offsets_at", at)
    monkeypatch.setattr(topics, "read_to_end", messages)


def messages(*place: Any) -> Iterator[Message]:
    _, topic, _, _, starts, ends = place
    for partition, start in starts.items():
        for offset in range(start, ends[partition]):
            headers = [("streamjoin-id", b"impressions/0/1|")] if offset % 2 else []
            content: dict[str, Any] = {"topic": topic, "partition": partition, "offset": offset}
            yield Message(value=b"{}", timestamp=(1, offset), headers=headers, **content)


def read(parts: InputParts, compacted: frozenset[str] = frozenset()) -> InputsRead:
    assert sum(len(each) for each in parts.records(plan(), {}).values()) == sum(
        part.records for part in parts.parts
    )
    return parts.read(plan(), compacted)


def test_records_before_the_part_may_have_event_times_up_to_the_limit() -> None:
    whole = read(input_parts(plan(), CLIENT, None, None))
    # Kafka has removed the records of a partition before offset 7.
    assert InputsRead(None, {"left": 7 + AHEAD, "right": None}) == whole

    since = read(input_parts(plan(), CLIENT, 10, 30))
    assert InputsRead(30, {"left": 10 + AHEAD, "right": 10 + AHEAD}) == since

    compacted = read(input_parts(plan(), CLIENT, None, 60), frozenset({"clicks"}))
    assert InputsRead(None, {"left": 7 + AHEAD, "right": NO_EVENT_TIME}) == compacted


def test_part_is_shortened_to_the_limit_of_records(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topics, "RECORDS_MAX", 50)

    parts = input_parts(plan(), CLIENT, None, 45)
    read(parts)

    assert (19, True) == (parts.until_ms, parts.is_limited)
    assert [19, 19 + 12] == [part.records for part in parts.parts]
    assert "because the limit is 50 records" in list(parts.lines)[-1]


def test_record_removed_during_the_reading_is_not_in_the_span(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    part = TopicPart("clicks", {0: 0}, {0: 0}, {0: 40})
    monkeypatch.setattr(
        topics, "read_to_end", lambda *_: messages(0, "clicks", 0, 0, {0: 4}, {0: 40})
    )

    assert 36 == len(list(part.messages({})))
    assert ({0: 4}, 4) == (part.starts, part.removed_ms)


@pytest.mark.parametrize("ends_after", [3, None])
def test_open_transaction_may_hide_results_until_it_ends(
    monkeypatch: pytest.MonkeyPatch, ends_after: int | None
) -> None:
    """`ends_after`: number of requests. None: the transaction does not end."""
    calls: list[object] = []

    def offsets(_: object, name: str, *isolation: object) -> tuple[dict[int, int], dict[int, int]]:
        calls.append(isolation)
        ends = ENDS[name]
        if isolation or (ends_after is not None and len(calls) > ends_after):
            return EARLIEST[name], ends
        return EARLIEST[name], {partition: end - 1 for partition, end in ends.items()}

    monkeypatch.setattr(topics, "offsets", offsets)
    monkeypatch.setattr(topics, "_OPEN_SECONDS", 0.01 if ends_after is None else 60)
    monkeypatch.setattr(topics, "_POLL_SECONDS", 0.001)

    part = output_part(plan(), CLIENT, None)

    assert (ends_after is None) == part.is_hidden
    visible = {p: end - part.is_hidden for p, end in ENDS[part.topic].items()}
    assert visible == part.ends


def test_results_are_read_since_the_time_of_their_records() -> None:
    since = output_part(plan(), CLIENT, AHEAD_MS + 80)
    assert ({0: 80}, None) == (since.starts, since.removed_ms)
    assert 10 == len(list(written_results(plan(), since, {})))

    by_event_time = plan(output__timestamp="event_time", output__delivery="exactly_once")
    whole = output_part(by_event_time, CLIENT, AHEAD_MS + 80)
    first, second, *_ = written_results(by_event_time, whole, {})
    assert ({0: 3}, 3) == (whole.starts, whole.removed_ms)
    assert (True, False) == (first.records is not None, second.records is not None)
    assert first.written_ms is None
