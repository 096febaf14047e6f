"""`engine: real_time` in spec, plan and fingerprint."""

from datetime import timedelta
from typing import Any

import pytest

from job.plan import tuning
from job.plan.fingerprint import Change, changes, fingerprint
from job.plan.real_time import source_options
from job.spec.engine import Engine
from job.spec.output import Delivery
from job.spec.spec import spec_from_yaml
from tests.unit.specs import plan, problems, spec_yaml

REAL_TIME: dict[str, Any] = {"engine": "real_time"}


def test_engine_is_micro_batch_unless_the_spec_names_another() -> None:
    assert Engine.MICRO_BATCH is plan().engine
    assert Engine.REAL_TIME is plan(**REAL_TIME).engine


def test_interval_takes_three_minutes_unless_the_spec_names_another() -> None:
    default = plan(**REAL_TIME).real_time
    written = plan(engine="real_time", real_time={"checkpoint_interval": "5 seconds"}).real_time

    assert default is not None
    assert timedelta(minutes=3) == default.checkpoint_interval
    assert written is not None
    assert timedelta(seconds=5) == written.checkpoint_interval


@pytest.mark.parametrize("interval", ["999 milliseconds", "61 minutes"])
def test_interval_outside_its_bounds_is_refused(interval: str) -> None:
    found = problems(engine="real_time", real_time={"checkpoint_interval": interval})

    assert {"real_time.checkpoint_interval": "must be between 1 second and 1 hour"} == found


def test_real_time_settings_of_the_other_engine_are_refused() -> None:
    found = problems(real_time={"checkpoint_interval": "5 seconds"})

    assert "write `engine: real_time`" in found["the file"]


def test_everything_that_the_engine_cannot_run_is_refused_at_once() -> None:
    found = problems(
        **REAL_TIME,
        left__deduplicate={"by": ["ad_id"], "within": "1 hour"},
        right__deduplicate={"by": ["user"], "within": "1 hour"},
    )

    assert {"left.deduplicate", "right.deduplicate"} == set(found)


@pytest.mark.parametrize(
    "policy",
    [
        {"on_bad_record": "drop"},
        {"on_bad_record": "fail"},
        {"on_bad_record": None, "dead_letter": {"topic": "dead"}, "on_late_row": "dead_letter"},
    ],
)
def test_all_policies_of_bad_records_and_late_rows_are_accepted(policy: dict[str, Any]) -> None:
    plan(**REAL_TIME, **policy)


def test_commit_interval_is_50_milliseconds_unless_the_spec_names_another() -> None:
    default, written = (
        plan(
            engine="real_time",
            real_time=settings,
            output__delivery="exactly_once",
        ).real_time
        for settings in ({}, {"commit_interval": "20 milliseconds"})
    )

    assert default is not None
    assert timedelta(milliseconds=50) == default.commit_interval
    assert written is not None
    assert timedelta(milliseconds=20) == written.commit_interval


@pytest.mark.parametrize("interval", ["4 milliseconds", "61 seconds"])
def test_commit_interval_outside_its_bounds_is_refused(interval: str) -> None:
    found = problems(engine="real_time", real_time={"commit_interval": interval})

    expected = {"real_time.commit_interval": "must be between 5 milliseconds and 1 minute"}
    assert expected == found


def test_commit_interval_without_transactions_is_refused() -> None:
    found = problems(
        engine="real_time",
        real_time={"commit_interval": "50 milliseconds"},
        output__delivery="at_least_once",
    )

    assert "is not used with delivery at_least_once" in found["real_time.commit_interval"]


def test_micro_batches_are_refused_nothing() -> None:
    spec_from_yaml(spec_yaml(output__delivery="exactly_once", on_bad_record="fail"), {})
    plan(output__delivery="exactly_once", on_bad_record="fail")


def test_engine_is_frozen() -> None:
    micro_batch = fingerprint(plan(join__operator="streamjoin"))
    real_time = fingerprint(plan(**REAL_TIME))

    assert [Change("engine", "micro_batch", "real_time")] == changes(micro_batch, real_time)
    assert [Change("engine", "real_time", "micro_batch")] == changes(real_time, micro_batch)


@pytest.mark.parametrize(
    ("commit_interval", "wait_ms"),
    [("5 milliseconds", "1"), ("50 milliseconds", "10"), ("1 minute", "500")],
)
def test_fetch_of_exactly_once_waits_for_a_part_of_the_commit_interval(
    commit_interval: str, wait_ms: str
) -> None:
    planned = plan(
        engine="real_time",
        real_time={"commit_interval": commit_interval},
        output__delivery="exactly_once",
    ).real_time

    assert planned is not None
    assert wait_ms == source_options(Delivery.EXACTLY_ONCE, planned)["kafka.fetch.max.wait.ms"]


def test_fetch_of_at_least_once_waits_for_no_second_record() -> None:
    planned = plan(engine="real_time", output__delivery="at_least_once").real_time

    assert planned is not None
    assert "kafka.fetch.min.bytes" not in source_options(Delivery.AT_LEAST_ONCE, planned)


def test_interval_may_change_between_starts() -> None:
    other = plan(engine="real_time", real_time={"checkpoint_interval": "5 seconds"})

    assert [] == changes(fingerprint(plan(**REAL_TIME)), fingerprint(other))


def test_each_partition_of_topics_and_state_has_a_task_in_an_interval() -> None:
    reads = plan(**REAL_TIME).reading({"left": (5,), "right": (7,)})

    assert 5 + 7 + reads.state_partitions == reads.interval_tasks


def test_spark_settings_of_real_time_are_those_of_micro_batches_and_its_own() -> None:
    micro_batch, real_time = plan().spark_conf, plan(**REAL_TIME).spark_conf

    compiles_later = {tuning.DRIVER_OPTIONS}
    assert compiles_later == {
        name for name, value in micro_batch.items() if real_time[name] != value
    }
    assert "Tier4" in micro_batch[tuning.DRIVER_OPTIONS]
    assert "Tier4" not in real_time[tuning.DRIVER_OPTIONS]
    assert "1s" == real_time["spark.sql.streaming.realTimeMode.minBatchDuration"]
    assert tuning.FROZEN_CONF.items() <= real_time.items()
