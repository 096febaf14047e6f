"""A stream joined with a table, Kafka to Kafka, in both engines: what is in the table before a
record of the stream, and what changes later."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.local.kafka import EmbeddedKafka
from job.protocol.progress import TableCounts
from job.protocol.status import JobStatus, Phase
from tests.integration.jobs import START_SECONDS, Job
from tests.integration.jvms import SharedJvm
from tests.integration.table_topics import HOUR_MS, NOON_MS, Prices, Topics
from tests.polling import wait_until

CUSTOMERS = 3_000
"""More than the first batch of a table reads."""


@pytest.fixture(scope="module", params=["micro_batch", "real_time"])
def engine(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture(scope="module")
def real_time_jvm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SharedJvm]:
    """Its first job gives the Spark context the task slots of the real-time engine."""
    with SharedJvm(tmp_path_factory.mktemp("jvm")) as started:
        yield started


@pytest.fixture
def shared(engine: str, jvm: SharedJvm, real_time_jvm: SharedJvm) -> SharedJvm:
    return real_time_jvm if engine == "real_time" else jvm


def is_changed(status: JobStatus) -> bool:
    return status.last_change is not None and status.last_change.made_at is not None


def is_running(engine: str, status: JobStatus) -> bool:
    return status.phase is (Phase.REAL_TIME if engine == "real_time" else None)


def test_order_gets_what_the_table_has(
    engine: str, kafka: EmbeddedKafka, tmp_path: Path, shared: SharedJvm
) -> None:
    topics = Topics(kafka, engine, tmp_path)
    topics.order(*range(0, CUSTOMERS, 4), CUSTOMERS + 1, None)
    topics.customers(dict.fromkeys(range(CUSTOMERS), "old"))
    topics.customers({customer: f"tier {customer}" for customer in range(CUSTOMERS)})
    topics.customers({0: None})
    with Job(topics.spec, tmp_path, shared) as job:
        # Nothing that was in the table at the start is missed.
        expected = [None, *(f"tier {each}" for each in range(4, CUSTOMERS, 4)), None, None]
        assert expected == topics.tiers()
        # In real time the results of an interval are counted at its end.
        status = job.wait_for(
            lambda each: (
                is_running(engine, each)
                and each.totals.unmatched_results == 3
                and each.totals.table.rows_without_key >= 2
            ),
            "the table is read, and all results are counted",
        )
        assert status.table_records_left is None

        topics.customers({1: "changed", 2: None, CUSTOMERS: "new"})
        if engine == "real_time":
            wait_for_change(topics)
        topics.order(1, 2, 4, CUSTOMERS)
        assert ["changed", None, "tier 4", "new"] == topics.tiers()[-4:]

        # What changes while no job runs is read before the stream, too. After a kill an interval is
        # repeated, with the table from the state store.
        if engine == "real_time":
            job.kill_tree()
        else:
            assert 0 == job.terminate()
        topics.order(1, 2, 4, 5)
        topics.customers({1: "while stopped", 2: "again", 4: None})
        job.start()
        assert ["while stopped", "again", None, "tier 5"] == topics.tiers()[-4:]

    results = topics.results()
    assert all(record.result_id.endswith("|") for record in results.values())
    for record in results.values():
        place = record.headers["streamjoin-match"]
        is_matched = record.value["tier"] is not None
        assert is_matched == (place is not None), record
        assert place is None or place.startswith(f"tables.{engine}.customers/")
    assert status.totals.table.rows_without_key == 2
    assert status.last_batch is not None
    assert status.last_batch.state_rows == CUSTOMERS - 1


def test_change_reads_the_table_again_and_the_stream_from_the_cut_on(
    engine: str, kafka: EmbeddedKafka, tmp_path: Path, shared: SharedJvm
) -> None:
    """A row that is no longer in the topic is gone: so a change repairs a table whose tombstones
    Kafka has removed before they were read."""
    topics = Topics(kafka, engine, tmp_path, "changed")
    folder = tmp_path / "new"
    folder.mkdir()
    new_spec = topics.spec.replace("right.tier}", "upper(right.tier)}")
    new_spec = new_spec.replace(f"{tmp_path}/checkpoint", f"{folder}/checkpoint")
    topics.customers(dict.fromkeys(range(CUSTOMERS), "old"))
    topics.order(1, 2)
    with Job(topics.spec, tmp_path, shared) as job:
        assert ["old", "old"] == topics.tiers()
        new = Job(new_spec, folder, shared)
        if engine == "real_time":  # what an interrupted interval has delivered is repeated first
            job.wait_for(lambda each: is_running(engine, each), "the table is read")
        topics.forget_customers()
        topics.customers({1: "after", 3: "after"})
        changed = job.command("change", str(job.spec_file), str(new.spec_file))
        assert 0 == changed.returncode, changed.stderr
        assert 0 == job.terminate()

    topics.customers({3: None, 4: "later"})
    topics.order(1, 2, 3, 4)
    with new:
        assert ["old", "old", "AFTER", None, None, "LATER"] == topics.tiers()
        status = new.wait_for(lambda each: is_running(engine, each), "the table is read")
        assert status.change is not None
        assert 0 == status.change.records_left


def test_table_is_read_again_if_tombstones_may_be_gone(
    engine: str, kafka: EmbeddedKafka, tmp_path: Path, shared: SharedJvm
) -> None:
    """As if customer 2 had been deleted, and Kafka had removed the tombstone."""
    topics = Topics(kafka, engine, tmp_path, "reloaded", delete_retention_ms=1)
    topics.customers({1: "old", 2: "old", 3: "old"})
    topics.order(1, 2)
    with Job(topics.spec, tmp_path, shared) as job:
        assert ["old", "old"] == topics.tiers()
        job.wait_for(lambda each: is_running(engine, each), "the table is read")
        # After a kill an interval is repeated first, with the state that it began with.
        if engine == "real_time":
            topics.order(3)
            assert ["old", "old", "old"] == topics.tiers()
            job.kill_tree()
        else:
            assert 0 == job.terminate()
        topics.forget_customers()
        topics.customers({1: "after", 3: "after"})
        job.start()
        status = job.wait_for(
            lambda each: is_changed(each) and is_running(engine, each), "the table is read again"
        )
        assert status.last_change is not None
        assert f"{tmp_path}/checkpoint-reload-1" == status.last_change.checkpoint
        topics.order(1, 2, 3)
        assert ["after", None, "after"] == topics.tiers()[-3:]

        if engine == "micro_batch":
            # It is the same query that later starts continue.
            assert 0 == job.terminate()
            topics.order(1)
            job.start()
            assert "after" == topics.tiers()[-1]
            check_resumed_query_reads_the_table_again(topics, job)
    reloads = 2 if engine == "micro_batch" else 1
    assert job.log.read_text().count("table_read_again") == reloads


def check_resumed_query_reads_the_table_again(topics: Topics, job: Job) -> None:
    job.ask("pause")
    job.wait_for_state("PAUSED")
    topics.forget_customers()
    topics.customers({2: "resumed"})
    topics.order(1, 2)
    job.ask("resume")
    assert [None, "resumed"] == topics.tiers()[-2:]


def wait_for_change(topics: Topics) -> None:
    """In real time both topics are read at the same time."""

    def is_changed() -> bool:
        topics.order(1)
        return topics.tiers()[-1] == "changed"

    wait_until(is_changed, START_SECONDS, "the change of the table is applied")


def may_make_late(engine: str, status: JobStatus, hour: int) -> bool:
    """Whether the next orders are behind the watermark of an order of the hour. In micro-batches
    they are in the next batch, which has it. An interval makes orders late by the watermark that it
    has when it reads its first record of this join, so an earlier one must have ended with it."""
    watermark_ms = NOON_MS + hour * HOUR_MS - 1_000
    if engine == "micro_batch":
        return True
    return status.last_batch is not None and status.last_batch.watermark_ms == watermark_ms


def test_order_gets_the_version_of_its_time(
    engine: str, kafka: EmbeddedKafka, tmp_path: Path, shared: SharedJvm
) -> None:
    prices = Prices(kafka, engine, tmp_path, "priced", "as_of")
    prices.version(3, "gold")
    prices.version(1, "silver")
    prices.order(0, 1, 2, 3)
    with Job(prices.spec, tmp_path, shared) as job:
        assert {0: None, 1: "silver", 2: "silver", 3: "gold"} == prices.tiers(4)
        job.wait_for(
            lambda each: is_running(engine, each) and may_make_late(engine, each, hour=3),
            "the table is read, and the watermark follows the orders",
        )

        prices.version(2, "late")
        job.wait_for(lambda each: each.totals.right.records == 3, "the late version is read")
        prices.order(4, 1)
        assert "gold" == prices.tiers(5)[4]
        job.wait_for(lambda each: each.totals.late_rows == 1, "the late order is counted")
        counts = TableCounts(rows_before_first=1, stale_answers=1)
        job.wait_for(lambda each: each.totals.table == counts, "order and version are counted")

    assert [1] == prices.late_orders()


def test_order_waits_for_a_version_that_is_read_later(
    kafka: EmbeddedKafka, tmp_path: Path, jvm: SharedJvm
) -> None:
    prices = Prices(kafka, "micro_batch", tmp_path, "waiting", "{{version: as_of, wait: 2 hours}}")
    prices.order(-1, 1)
    with Job(prices.spec, tmp_path, jvm) as job:
        job.wait_for(lambda each: each.totals.left.records == 2, "the orders are read")
        prices.version(0, "gold")
        assert {1: "gold"} == prices.tiers(1)

        assert 0 == job.terminate()
        job.start()
        prices.order(5)
        assert {1: "gold", 5: "gold", -1: None} == prices.tiers(3)
        job.wait_for(
            lambda each: each.totals.table == TableCounts(rows_before_first=1), "the row is counted"
        )


def test_order_waits_for_the_version_of_its_time(
    engine: str, kafka: EmbeddedKafka, tmp_path: Path, shared: SharedJvm
) -> None:
    prices = Prices(kafka, engine, tmp_path, "final", "{{version: as_of, final: true}}")
    prices.version(1, "silver")
    prices.order(0, 1, 2)
    with Job(prices.spec, tmp_path, shared) as job:
        assert {0: None, 1: "silver"} == prices.tiers(2)
        job.wait_for(lambda each: is_running(engine, each), "the table is read")
        if engine == "micro_batch":  # in real time the state is that of the last interval
            [waiting] = job.ask("state", side="left", key=["1"], limit=10)["result"]["rows"]
            assert 2 == waiting["row"]["id"]
            [version] = job.ask("state", side="right", key=["1"], limit=10)["result"]["rows"]
            assert "silver" == version["row"]["tier"]
        prices.version(2, "gold")
        job.wait_for(lambda each: each.totals.right.records == 2, "the version is read")
        prices.order(3)
        assert "gold" == prices.tiers(3)[2]
        prices.version(1, "late")
        job.wait_for(lambda each: each.totals.late_rows == 1, "the late version is counted")

        if engine == "real_time":  # an interval is repeated with what it has delivered
            job.kill_tree()
        prices.version(3, "platinum")
        prices.order(4)
        if engine == "real_time":
            job.start()
        assert "platinum" == prices.tiers(4)[3]
        prices.order(5)
        assert "platinum" == prices.tiers(5)[4]
