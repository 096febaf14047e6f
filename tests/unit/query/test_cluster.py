"""Checks of a start on a cluster."""

from types import SimpleNamespace
from typing import Any

import pytest

from job.errors import CheckpointError, QueryError, SetupError
from job.query import cluster
from job.query.cluster import (
    check_is_shared,
    check_partitions_are_chosen,
    check_slots,
    wait_for_executors,
)
from job.settings import JobSettings
from tests.unit.specs import plan

REAL_TIME = {"engine": "real_time"}


def settings(**fields: Any) -> JobSettings:
    return JobSettings(spark_master="spark://master:7077", **fields)


def folder(root: str) -> Any:
    return SimpleNamespace(root=root, scheme=root.partition(":")[0])


@pytest.mark.parametrize("master", ["local", "local[*]", "local[4]", "local[4, 2]"])
def test_local_master_is_no_cluster(master: str) -> None:
    assert not JobSettings(spark_master=master).is_on_cluster


@pytest.mark.parametrize(
    "master", ["spark://m:7077", "yarn", "k8s://https://m", "local-cluster[2,1,1024]"]
)
def test_other_masters_are_a_cluster(master: str) -> None:
    assert JobSettings(spark_master=master).is_on_cluster


def test_checkpoint_on_the_driver_s_disk_is_refused_with_the_remedies() -> None:
    with pytest.raises(CheckpointError, match="STREAMJOIN_CHECKPOINT_IS_SHARED=true") as refused:
        check_is_shared(folder("file:/var/lib/streamjoin/join"), settings())

    assert "file:/var/lib/streamjoin/join" in str(refused.value)
    assert "spark://master:7077" in str(refused.value)


def test_shared_checkpoint_is_accepted() -> None:
    check_is_shared(folder("hdfs://namenode:8020/join"), settings())
    check_is_shared(folder("s3a://bucket/join"), settings())
    check_is_shared(folder("file:/mnt/shared/join"), settings(checkpoint_is_shared=True))


def test_number_of_state_partitions_is_required() -> None:
    with pytest.raises(SetupError, match="STREAMJOIN_STATE_PARTITIONS"):
        check_partitions_are_chosen(settings())

    check_partitions_are_chosen(settings(state_partitions=4))


def session(*, executors: int, slots: int) -> Any:
    """The memory status has an entry for the driver, too."""
    java = SimpleNamespace(
        getExecutorMemoryStatus=lambda: SimpleNamespace(size=lambda: 1 + executors),
        resourceProfileManager=lambda: SimpleNamespace(defaultResourceProfile=lambda: "default"),
        maxNumConcurrentTasks=lambda _: slots,
    )
    context = SimpleNamespace(master="spark://master:7077", _jsc=SimpleNamespace(sc=lambda: java))
    return SimpleNamespace(sparkContext=context)


def test_missing_executors_are_a_retryable_error_that_names_the_cluster(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cluster, "EXECUTOR_SECONDS", 0.0)

    with pytest.raises(
        QueryError, match=r"no executor registered .* spark://master:7077"
    ) as refused:
        wait_for_executors(session(executors=0, slots=2), 4)

    assert refused.value.retryable


def test_query_starts_after_a_while_with_fewer_task_slots_than_state_partitions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cluster, "OTHERS_SECONDS", 0.0)

    wait_for_executors(session(executors=1, slots=2), 4)


def test_interval_needs_a_task_slot_for_each_partition_and_one_for_lookups() -> None:
    reads = plan(**REAL_TIME).reading({"left": (4,), "right": (2,)})
    needed = 4 + 2 + reads.state_partitions + 1

    check_slots(session(executors=2, slots=needed), reads)
    with pytest.raises(QueryError, match=rf"needs {needed} task slots .* add 1 cores") as refused:
        check_slots(session(executors=2, slots=needed - 1), reads)

    assert f"the executors have {needed - 1}" in str(refused.value)
    assert f"4 for the partitions of {reads.left.topic}, 2 for {reads.right.topic}" in str(
        refused.value
    )
    assert refused.value.retryable, "executors may be added"


def test_single_core_is_one_task_slot() -> None:
    with pytest.raises(QueryError, match="the executors have 1: add"):
        check_slots(session(executors=1, slots=1), plan(**REAL_TIME))


def test_partition_added_to_a_topic_needs_another_slot() -> None:
    reads = plan(**REAL_TIME).reading({"left": (1,), "right": (1,)})
    slots = reads.interval_tasks + 1

    check_slots(session(executors=1, slots=slots), reads)
    with pytest.raises(QueryError, match="add 1 cores"):
        check_slots(session(executors=1, slots=slots), reads.reading({"left": (1,), "right": (2,)}))
