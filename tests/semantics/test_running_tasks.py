"""RunningTasks.java, from the events of Spark's listener bus."""

from typing import Any

import pytest
from pyspark.sql import SparkSession

from job.spark.java_classes import java_class

ROWS = 7
"""Id of an accumulator."""
NEVER_SILENT_MS = 60_000
SILENT_MS = 0


@pytest.fixture
def tasks(spark: SparkSession) -> Any:
    made = java_class(spark, "RunningTasks")()
    made.watch(ROWS)
    return made


def heartbeat(tasks: Any, task: int, rows: int) -> None:
    tasks.heard(task)
    tasks.report(task, ROWS, rows)


def test_late_heartbeat_of_an_ended_task_does_not_count_in_the_next_interval(tasks: Any) -> None:
    tasks.started(1)
    heartbeat(tasks, 1, 5)
    tasks.ended(1)
    tasks.beginInterval(NEVER_SILENT_MS)

    heartbeat(tasks, 1, 5)
    assert 0 == tasks.sum(ROWS)

    tasks.started(2)
    heartbeat(tasks, 2, 3)
    assert 3 == tasks.sum(ROWS)


def test_values_of_ended_tasks_count_until_the_next_interval(tasks: Any) -> None:
    for task in (1, 2):
        tasks.started(task)
        heartbeat(tasks, task, 5)
    tasks.ended(1)
    assert 10 == tasks.sum(ROWS)

    tasks.beginInterval(NEVER_SILENT_MS)
    assert 5 == tasks.sum(ROWS)


def test_tasks_are_alive_while_each_sends_heartbeats(tasks: Any) -> None:
    assert not tasks.areAlive(NEVER_SILENT_MS)

    tasks.started(1)
    assert tasks.areAlive(NEVER_SILENT_MS)
    assert not tasks.areAlive(SILENT_MS)

    tasks.ended(1)
    assert not tasks.areAlive(NEVER_SILENT_MS)


def test_task_whose_end_is_lost_is_forgotten_by_the_next_interval(tasks: Any) -> None:
    tasks.started(1)
    tasks.beginInterval(SILENT_MS)
    tasks.started(2)

    assert tasks.areAlive(NEVER_SILENT_MS)
    assert not tasks.heard(1)
