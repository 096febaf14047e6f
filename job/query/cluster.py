"""Checks of a cluster's executors before the query starts.

Without them the query fails with a stack trace. Or it fails later, because an executor has written
state to a folder that the other executors cannot read.
"""

import os
import re
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from socket import gethostname
from urllib.parse import urlsplit

import structlog
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from job.checkpoint.folder import Folder
from job.errors import CheckpointError, QueryError, SetupError, StreamjoinError
from job.plan.plan import JoinPlan
from job.plan.real_time import LOOKUP_SLOTS
from job.plan.tuning import overriding_options
from job.settings import JobSettings
from job.spark.executors import executor_count, slot_count
from job.waiting import wait_until

# Enough to schedule and start a container whose image is present.
EXECUTOR_SECONDS = 60.0
# Time between the first executor and the others.
OTHERS_SECONDS = 10.0
_POLL_SECONDS = 0.1

# Packages whose code the executors run: the check itself, and Spark's jars.
_PACKAGES = ("streamjoin", "pyspark")

_log = structlog.get_logger()


def check_is_shared(checkpoint: Folder, settings: JobSettings) -> None:
    """Raises CheckpointError if executors would write state to a local folder."""
    if checkpoint.scheme == "file" and not settings.checkpoint_is_shared:
        raise CheckpointError(
            f"checkpoint {checkpoint.root} is a folder of this machine, but Spark's executors run "
            f"on other machines ({settings.spark_master}): each would write its part of the state "
            "to its own disk. Set `checkpoint` to a folder on hdfs: or s3a:, or, if all machines "
            "mount the same file system there, set STREAMJOIN_CHECKPOINT_IS_SHARED=true"
        )


def check_partitions_are_chosen(settings: JobSettings) -> None:
    """Raises SetupError if the number of state partitions would depend on the driver's cores."""
    if settings.state_partitions is None:
        raise SetupError(
            "STREAMJOIN_STATE_PARTITIONS is required for the first start on a cluster. The "
            "checkpoint freezes it, and no more cores than state partitions are ever used: set it "
            "to the largest number of cores that the executors will have"
        )


def wait_for_executors(spark: SparkSession, tasks: int) -> None:
    """Wait for the first executor, then shortly for as many task slots as there are `tasks`.

    A state partition stays on its first executor, so later executors would have none. Raises a
    retryable QueryError if no executor registers.
    """
    if not wait_until(lambda: executor_count(spark) > 0, EXECUTOR_SECONDS, _POLL_SECONDS):
        raise QueryError(
            f"no executor registered within {EXECUTOR_SECONDS:.0f} s at "
            f"{spark.sparkContext.master}: check that its workers are running, and have the free "
            "cores and memory that an executor needs (spark.executor.cores, spark.executor.memory)",
            retryable=True,
        )
    if not wait_until(lambda: slot_count(spark) >= tasks, OTHERS_SECONDS, _POLL_SECONDS):
        _log.warning("few_slots", slots=slot_count(spark), tasks=tasks)


def check_slots(spark: SparkSession, plan: JoinPlan) -> None:
    """Raises a retryable QueryError if a task of an interval would get no slot: it would wait until
    the interval ends. `plan`: with the partitions of the topics."""
    slots, needed = slot_count(spark), slots_of_interval(plan)
    if slots < needed:
        raise QueryError(
            f"engine real_time needs {needed} task slots at the same time "
            f"({plan.left.partitions} for the partitions of {plan.left.topic}, "
            f"{plan.right.partitions} for {plan.right.topic}, {plan.state_partitions} for "
            f"the state partitions, {LOOKUP_SLOTS} for lookups), and the executors have {slots}: "
            f"add {needed - slots} cores, or use engine micro_batch with a new checkpoint",
            retryable=True,
        )


def slots_of_interval(plan: JoinPlan) -> int:
    return plan.interval_tasks + LOOKUP_SLOTS


def check_executors(spark: SparkSession, checkpoint: Folder) -> None:
    """Raises QueryError if an executor cannot run this job, CheckpointError if it cannot use the
    folder of the checkpoint."""
    with _probe_file(checkpoint) as path:
        for problem in _problems(spark, path):
            raise problem


@contextmanager
def _probe_file(checkpoint: Folder) -> Iterator[str | None]:
    """Path of a new file that each machine that shares the checkpoint can read.

    None: the file system has the same address on all machines.
    """
    if checkpoint.scheme != "file":
        yield None
        return
    name = f"seen-{uuid.uuid4().hex}.json"
    checkpoint.write(name, "{}")
    try:
        yield urlsplit(checkpoint.path(name)).path
    finally:
        checkpoint.remove(name)


def _problems(spark: SparkSession, path: str | None) -> Iterator[StreamjoinError]:
    """Runs about two tasks per core, so that each executor runs one."""
    context = spark.sparkContext
    tasks = 2 * context.defaultParallelism
    try:
        checks = (
            context.parallelize(range(tasks), tasks).map(partial(_check_executor, path)).collect()
        )
    except PySparkException as error:
        raise QueryError(_not_run(error), retryable=False) from None
    here = _versions()
    for host, there, options, problem in checks:
        if there != here:
            yield QueryError(
                f"the executor on {host} has {_list(there)}, and this job {_list(here)}: install "
                "the same versions there, or set PYSPARK_PYTHON to a Python that has them",
                retryable=False,
            )
        if options:
            yield QueryError(
                f"the environment variable _JAVA_OPTIONS of the executor on {host} contains "
                f"{', '.join(options)}: Java applies it after the options of the job, and results "
                "would depend on it. Remove these options",
                retryable=False,
            )
        if problem is not None:
            yield CheckpointError(
                f"the executor on {host} {problem} {path}, which the job has just written: the "
                "checkpoint is not on a shared file system although "
                "STREAMJOIN_CHECKPOINT_IS_SHARED is set, or the executor's user cannot write "
                "there. Mount the file system on all machines, or set `checkpoint` to a folder on "
                "hdfs: or s3a:"
            )


def _check_executor(path: str | None, _: int) -> tuple[str, dict[str, str], list[str], str | None]:
    """Host, package versions, Java options that override those of the job, and problem with the
    checkpoint of the executor that runs this task."""
    problem = None if path is None else _problem(Path(path))
    return gethostname(), _versions(), overriding_options(os.environ), problem


def _problem(path: Path) -> str | None:
    if not path.exists():
        return "cannot find"
    try:
        with tempfile.TemporaryFile(dir=path.parent):
            return None
    except OSError as error:
        return f"cannot write ({error.strerror}) into the folder of"


def _versions() -> dict[str, str]:
    versions = {}
    for name in _PACKAGES:
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            versions[name] = "none"
    return versions


def _list(versions: dict[str, str]) -> str:
    return ", ".join(f"{name} {number}" for name, number in versions.items())


def _not_run(error: PySparkException) -> str:
    """Message with the last line of the stack trace that names an error."""
    lines = str(error).splitlines()
    reason = next(
        (line for line in reversed(lines) if re.match(r"\w+(\.\w+)*Error\b", line)), lines[0]
    )
    return (
        f"the executors' Python cannot run this job: {reason}. Install the same Python with the "
        "same packages, including streamjoin, on all machines at the same path, and set "
        "PYSPARK_PYTHON to it"
    )
