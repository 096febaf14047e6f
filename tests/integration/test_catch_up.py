"""A backlog with uneven partitions: no row in order is late, and the watermark advances."""

import json
from pathlib import Path

import pytest
from confluent_kafka import Producer

from deploy.local.kafka import EmbeddedKafka
from job.protocol.status import JobStatus
from tests.integration.jobs import START_SECONDS, Job
from tests.integration.jvms import SharedJvm
from tests.integration.topics import add_partitions
from tests.integration.uneven import T0, Uneven
from tests.polling import wait_until

# More than the first two batches of a started job read, so that a killed job has records left.
PAIRS = 40_000


@pytest.fixture(scope="module")
def uneven(kafka: EmbeddedKafka) -> Uneven:
    topics = Uneven(kafka, "uneven", PAIRS)
    topics.create()
    topics.close()
    return topics


@pytest.mark.parametrize(
    ("join_type", "delivery", "kills"),
    [("right_outer", "exactly_once", 2), ("full_outer", "at_least_once", 1)],
)
def test_uneven_backlog_is_joined_completely_although_a_job_is_killed_twice(
    uneven: Uneven, tmp_path: Path, jvm: SharedJvm, join_type: str, delivery: str, kills: int
) -> None:
    """What a restart recovers, offsets and event times, does not depend on the join type: one job
    is killed for each delivery. tests/unit/query/test_driver_explored.py reads backlogs in any
    order."""
    name, spec = uneven.spec(tmp_path, join_type, delivery)
    expected = uneven.expected(join_type)
    with Job(spec, tmp_path, jvm) as job:

        def has_read_all(status: JobStatus) -> bool:
            brokers = status.brokers
            ends = [brokers.left.behind_latest, brokers.right.behind_latest] if brokers else []
            return bool(ends) and all(end and not any(end.values()) for end in ends)

        for _ in range(kills):
            status = job.wait_for(
                lambda status: status.totals.batches >= 1 or has_read_all(status),
                "a batch has ended, or a slow poll has missed the last one",
            )
            assert 0 == status.totals.late_rows
            job.kill_tree()
            job.start()

        # The second kill may come after the last record, and lose its event time.
        uneven.close()
        status = job.wait_for(has_read_all, "all is read")
        wait_until(
            lambda: uneven.has_written(name, expected), START_SECONDS, "all results have come"
        )
    results = uneven.results(name)

    assert (expected, 0) == (set(results), status.totals.late_rows)
    if delivery == "exactly_once":
        assert {1} == set(results.values())


class Sides:
    """Two topics that receive rows one by one, by partition and seconds of event time."""

    def __init__(self, kafka: EmbeddedKafka, topics: Uneven) -> None:
        self.servers = kafka.bootstrap_servers
        self._topics = topics.topics
        kafka.create_topics([f"{self._topics}.{side}" for side in ("left", "right")], partitions=2)

    def send(self, n: int, at: float, *, partition: int = 0, only: str | None = None) -> None:
        producer = Producer({"bootstrap.servers": self.servers, "log_level": 0})
        for side in ("left", "right") if only is None else (only,):
            producer.produce(f"{self._topics}.{side}", row(n, at), partition=partition)
        assert 0 == producer.flush(30)

    def abort(self, *, partition: int) -> None:
        """Leave an aborted transaction at the end of a partition of each topic."""
        producer = Producer(
            {
                "bootstrap.servers": self.servers,
                "transactional.id": f"{self._topics}-{partition}",
                "log_level": 0,
            }
        )
        producer.init_transactions(30)
        producer.begin_transaction()
        for side in ("left", "right"):
            producer.produce(f"{self._topics}.{side}", row(0, 1), partition=partition)
        producer.flush(30)
        producer.abort_transaction(30)

    def add_partition(self) -> None:
        add_partitions(self.servers, f"{self._topics}.left", f"{self._topics}.right", total=3)


def row(n: int, at: float) -> bytes:
    return json.dumps({"n": n, "t": T0 + round(at * 1000)}).encode()


def test_watermark_advances_through_all_events_of_partitions_and_query(
    kafka: EmbeddedKafka, tmp_path: Path, jvm: SharedJvm
) -> None:
    topics = Uneven(kafka, "eventful", 0)
    sides = Sides(kafka, topics)
    name, spec = topics.spec(tmp_path, "full_outer")

    def came(*results: tuple[int | None, int | None]) -> None:
        def all_came() -> bool:
            return set(results) == set(topics.results(name))

        wait_until(all_came, START_SECONDS, f"{results} have come")

    def wait_for_watermark(at: float) -> None:
        job.wait_for(
            lambda status: status.last_batch and status.last_batch.watermark_ms == T0 + at * 1000,
            f"the watermark is at {at} s",
        )

    with Job(spec, tmp_path, jvm) as job:
        job.wait_for_state("RUNNING")  # with empty topics
        sides.send(1, 100)  # partition 1 stays idle
        sides.send(2, 130, only="left")
        sides.send(3, 130, only="right")
        wait_for_watermark(120)
        came((1, 1))

        sides.abort(partition=1)
        sides.send(4, 160)
        wait_for_watermark(150)
        came((1, 1), (2, None), (None, 3), (4, 4))

        job.ask("pause")
        job.wait_for_state("PAUSED")
        sides.send(5, 170)
        sides.send(6, 170, partition=1)
        job.ask("resume")
        wait_for_watermark(160)

        # After a restart the event time of an idle side is still known.
        job.ask("stop")
        job.wait_for_state("STOPPED")
        job.ask("resume")
        job.wait_for_state("RUNNING")
        sides.send(7, 165, partition=1)
        sides.send(8, 300, only="left")
        sides.send(9, 175, only="right")
        wait_for_watermark(165)

        sides.add_partition()
        sides.send(10, 310, partition=2)
        wait_for_watermark(300)
        joined = [(n, n) for n in (1, 4, 5, 6, 7, 10)]
        came(*joined, (2, None), (None, 3), (None, 9))
        times = job.wait_for(lambda status: status.event_times, "event times").event_times
        known = {number: (ms - T0) // 1000 for number, ms in times["left"].partitions.items()}
        assert {0: 300, 1: 170, 2: 310} == known

        job.ask("stop")
        job.wait_for_state("STOPPED")
        job.ask("reset", starts={"left": "earliest", "right": "earliest"})
        job.wait_for(
            lambda status: status.last_reset and status.last_reset.completed_at, "the reset"
        )
        job.ask("resume")
        job.wait_for_state("RUNNING")
        wait_for_watermark(300)
        wait_until(lambda: topics.results(name)[(1, 1)] == 2, START_SECONDS, "all is read again")

        # From altered offsets: the left side of partition 0 from record 5 on.
        job.ask("stop")
        job.wait_for_state("STOPPED")
        job.ask("reset", starts={"left": {0: 3, 1: 0, 2: 0}, "right": {0: 0, 1: 2, 2: 0}})
        job.wait_for(
            lambda status: status.last_reset and status.last_reset.completed_at, "the reset"
        )
        job.ask("resume")
        job.wait_for_state("RUNNING")
        wait_for_watermark(300)
        came(*joined, (2, None), (None, 1), (None, 3), (None, 4), (None, 9))
        wait_until(
            lambda: {3} == {topics.results(name)[(n, n)] for n in (5, 6, 7, 10)},
            START_SECONDS,
            "what lies behind the altered offsets is joined again",
        )
        assert 2 == topics.results(name)[(1, 1)]
        status = job.status()
    assert status is not None
    assert 0 == status.totals.late_rows
