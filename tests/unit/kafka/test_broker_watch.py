"""Polls of the brokers, and the group for lag tools."""

import pytest
import structlog
from confluent_kafka import KafkaError, KafkaException

from job.event_time.empty_tails import EmptyTails
from job.kafka import broker_watch
from job.kafka.broker_watch import BrokerWatch, group_offsets
from tests.polling import wait_until
from tests.unit.specs import plan


class Watch(BrokerWatch):
    """A watch whose two steps fail on request."""

    def __init__(self, *, poll: bool, commit: bool) -> None:
        super().__init__(
            plan(),
            settings=dict,
            read=lambda: None,
            topics=lambda: plan().topics,
            compare_topics=lambda _: None,
            tails=EmptyTails(),
        )
        self.polls = 0
        self.commits = 0
        self._fails = (poll, commit)

    def _poll(self) -> None:
        self.polls += 1
        if self._fails[0]:
            raise KafkaException(KafkaError(KafkaError._ALL_BROKERS_DOWN))

    def _poll_output(self) -> None:
        """There is no broker."""

    def _commit(self) -> None:
        self.commits += 1
        if self._fails[1]:
            raise KafkaException(KafkaError(KafkaError.GROUP_AUTHORIZATION_FAILED))


@pytest.fixture(autouse=True)
def _hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker_watch, "COMMIT_SECONDS", 0.001)
    monkeypatch.setattr(broker_watch, "POLL_SECONDS", 0.001)


def test_lag_is_read_without_an_acl_for_the_group_and_that_is_logged_once() -> None:
    watch = Watch(poll=False, commit=True)
    with structlog.testing.capture_logs() as logs:
        watch.start()
        wait_until(lambda: watch.polls > 3 and watch.commits > 3, 10, "both are retried")
        watch.close()

    assert watch.report().error is None
    assert ["offsets_not_committed"] == [log["event"] for log in logs]


def test_nothing_is_committed_while_the_brokers_are_unreachable() -> None:
    watch = Watch(poll=True, commit=False)
    with structlog.testing.capture_logs() as logs:
        watch.start()
        wait_until(lambda: watch.polls > 3, 10, "it polls again")
        watch.close()

    assert 0 == watch.commits
    assert watch.report().error is not None
    assert ["brokers_unreachable"] == [log["event"] for log in logs]


def test_group_has_one_offset_per_partition_of_a_self_join_the_smaller_one() -> None:
    read = {"left": {0: 5, 1: 7}, "right": {0: 6, 1: 4, 2: 1}}
    found = group_offsets(plan(right__topic="impressions").topics, read)

    assert [("impressions", 0, 5), ("impressions", 1, 4), ("impressions", 2, 1)] == [
        (place.topic, place.partition, place.offset) for place in found
    ]


def test_offsets_of_the_group_name_the_topic_of_each_partition() -> None:
    made = plan(left__topic=None, left__topics=["eu", "us"])
    committed = group_offsets(made.topics, {"left": {0: 5, 1024: 7}, "right": {0: 9}})
    places = [(place.topic, place.partition, place.offset) for place in committed]
    assert [("eu", 0, 5), ("us", 0, 7), ("clicks", 0, 9)] == places
