"""Offsets of the group for lag tools."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

import job
from job.kafka import group_offsets
from job.kafka.group_offsets import GroupOffsets

OFFSETS = [TopicPartition("left", 0, 5), TopicPartition("right", 1, 7)]
EARLIER = [TopicPartition("left", 0, 4), TopicPartition("right", 1, 7)]
Event = Callable[["FakeConsumer"], Any]


class FakeConsumer:
    """Has one event for each poll."""

    def __init__(self, settings: dict[str, Any], events: list[Event]) -> None:
        self.on_commit = settings["on_commit"]
        self._events = events

    def commit(self, *, offsets: Sequence[TopicPartition], asynchronous: bool) -> None:
        assert offsets == OFFSETS
        assert asynchronous

    def poll(self, _: float) -> Any:
        return self._events.pop(0)(self) if self._events else None


class ErrorMessage:
    def __init__(self, code: int) -> None:
        self._error = KafkaError(code)

    def error(self) -> KafkaError:
        return self._error


def answered(offsets: list[TopicPartition], code: int | None = None) -> Event:
    error = None if code is None else KafkaError(code)
    return lambda consumer: consumer.on_commit(error, offsets)


def commit(monkeypatch: pytest.MonkeyPatch, *events: Event) -> None:
    def consumer(settings: dict[str, Any], _: str) -> FakeConsumer:
        return FakeConsumer(settings, list(events))

    monkeypatch.setattr(group_offsets, "consumer", consumer)
    GroupOffsets({}, "streamjoin-ads").commit(OFFSETS, seconds=0.01)


def test_commit_waits_for_its_own_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    late = answered(EARLIER, KafkaError._TIMED_OUT)
    commit(monkeypatch, lambda _: None, late, answered(OFFSETS))


@pytest.mark.parametrize(
    ("event", "code"),
    [
        (answered(OFFSETS, KafkaError.NOT_COORDINATOR), KafkaError.NOT_COORDINATOR),
        (
            lambda _: ErrorMessage(KafkaError.GROUP_AUTHORIZATION_FAILED),
            KafkaError.GROUP_AUTHORIZATION_FAILED,
        ),
        (answered(EARLIER), KafkaError._TIMED_OUT),
    ],
)
def test_commit_that_fails_raises_the_error(
    event: Event, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(KafkaException) as raised:
        commit(monkeypatch, event)
    assert code == raised.value.args[0].code()


def test_job_has_no_call_of_the_admin_client_that_can_abort_the_process() -> None:
    calls = (
        "alter_consumer_group_offsets(",
        "delete_consumer_groups(",
        "describe_consumer_groups(",
        "list_consumer_group_offsets(",
    )
    for file in Path(job.__file__).parent.rglob("*.py"):
        assert [] == [call for call in calls if call in file.read_text()], file
