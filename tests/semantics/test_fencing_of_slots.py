"""Two runs of one JVM fence each other only in the order in which they began."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any, Self

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from deploy.local.kafka import EmbeddedKafka
from tests.faults.proxied_kafka import proxied_kafka
from tests.faults.proxy import Api, Point, Proxy
from tests.polling import wait_until
from tests.semantics.planted_java import Plant, compile_plants, use_plant
from tests.semantics.transaction_writes import PATIENCE_SECONDS, Writes

PLANTED: Mapping[str, Plant] = {
    "fences_at_any_time": Plant(
        "InitializedProducer.java",
        "LOCKS.computeIfAbsent(target.transactionalId(slot), id -> new ReentrantLock())",
        "new ReentrantLock()",
    ),
    "request_not_awaited": Plant(
        "InitializedProducer.java", "isInterrupted ? ANSWER : Duration.ZERO", "Duration.ZERO"
    ),
}

# Kafka's client has one message for a refused record, and another one for a refused commit.
FENCED = "a newer producer .* fences the current one|has been fenced by another producer"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[EmbeddedKafka, Proxy]]:
    with proxied_kafka(tmp_path_factory.mktemp("kafka")) as both:
        yield both


@pytest.fixture(scope="module")
def planted() -> None:
    compile_plants(PLANTED)


class TwoRuns:
    """A run waits for the answer to the request that fences other producers. Then the next run
    writes its first batch."""

    def __init__(
        self, spark: SparkSession, broker: tuple[EmbeddedKafka, Proxy], name: str, folder: Path
    ) -> None:
        self._spark, (kafka, self._proxy) = spark, broker
        self.writes = Writes(spark, kafka, name, folder)
        self.first, self.second = self.writes.run(), self.writes.run()
        self._group = f"first run of {name}"
        self._threads = ThreadPoolExecutor(2)

    def __enter__(self) -> Self:
        return self

    def begin(self) -> None:
        """Returns once the second run waits for the first one, or has written its batch."""
        self._fences = Point(Api.INIT_PRODUCER_ID, self.writes.transactional_id)
        self._proxy.catch(self._fences)
        self.first_batch = self._threads.submit(self._write_first)
        self._proxy.wait_until_caught(self._fences)
        self.first.close()
        self.second_batch = self._threads.submit(self.writes.write_one, self.second, "b", 0)
        wait_until(
            lambda: (
                self._is_any_task_in("InitializedProducer.create", "ReentrantLock")
                or self.second_batch.done()
            ),
            PATIENCE_SECONDS,
            "the second run waits, or has written its batch",
        )

    def __exit__(self, *_: object) -> None:
        self._proxy.release()
        self._threads.shutdown()
        for transactions in (self.first, self.second):
            transactions.close()

    def _write_first(self) -> None:
        self._spark.sparkContext.setJobGroup(self._group, "", interruptOnCancel=True)
        self.writes.write_one(self.first, "a", 0)

    def _is_any_task_in(self, *methods: str) -> bool:
        jvm: Any = self._spark._jvm
        stacks = (
            "".join(str(frame) for frame in entry.getValue())
            for entry in jvm.java.lang.Thread.getAllStackTraces().entrySet()
            if "Executor task" in entry.getKey().getName()
        )
        return any(all(method in stack for method in methods) for stack in stacks)

    def interrupt_first(self) -> None:
        self._spark.sparkContext.cancelJobGroup(self._group)
        wait([self.first_batch], PATIENCE_SECONDS)

    def release(self) -> None:
        self._proxy.release()
        self._proxy.wait_until_over(self._fences)
        with pytest.raises(Exception, match=r"has ended|cancelled"):
            self.first_batch.result(PATIENCE_SECONDS)


def check_next_run_is_not_fenced(runs: TwoRuns, before_release: Callable[[], None]) -> None:
    """Raises AssertionError if the first run fences the second one."""
    with runs:
        runs.begin()
        before_release()
        runs.release()
        runs.second_batch.result(PATIENCE_SECONDS)
        # In the slot of the first batch: its producer must not be fenced.
        failure = runs.writes.failure(runs.second, "c", 1)
        assert "" == failure
        assert Counter("bc") == runs.writes.found().rows


def test_run_that_has_ended_does_not_fence_the_next_one(
    spark: SparkSession, broker: tuple[EmbeddedKafka, Proxy], tmp_path: Path
) -> None:
    """Its request to fence other producers arrives late, because the broker is slow."""
    check_next_run_is_not_fenced(TwoRuns(spark, broker, "late", tmp_path), lambda: None)


def test_task_that_is_interrupted_does_not_fence_the_next_run(
    spark: SparkSession, broker: tuple[EmbeddedKafka, Proxy], tmp_path: Path
) -> None:
    runs = TwoRuns(spark, broker, "interrupted", tmp_path)
    check_next_run_is_not_fenced(runs, runs.interrupt_first)


@pytest.mark.usefixtures("planted")
@pytest.mark.parametrize("name", PLANTED)
def test_bug_planted_in_the_fencing_is_caught(
    spark: SparkSession,
    broker: tuple[EmbeddedKafka, Proxy],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
) -> None:
    use_plant(monkeypatch, name)
    runs = TwoRuns(spark, broker, name, tmp_path)

    def interrupt() -> None:
        if name == "request_not_awaited":
            runs.interrupt_first()
        runs.second_batch.result(PATIENCE_SECONDS)
        # The coordinator would refuse the late request of a producer that cannot send it again.
        runs.writes.wait_until_completed()

    with pytest.raises(AssertionError, match=rf"(?s)^assert '' == .*({FENCED})"):
        check_next_run_is_not_fenced(runs, interrupt)


def test_run_that_ends_while_it_waits_fences_no_other_one(
    spark: SparkSession, broker: tuple[EmbeddedKafka, Proxy], tmp_path: Path
) -> None:
    with TwoRuns(spark, broker, "waits", tmp_path) as runs:
        runs.begin()
        runs.second.close()
        runs.release()
        with pytest.raises(Py4JJavaError, match="the run of this task has ended"):
            runs.second_batch.result(PATIENCE_SECONDS)
    assert Counter() == runs.writes.found().rows
