"""Whether the executors of a cluster can do their part, asked of them before the query starts.

The query would find out, too: with a stack trace, or once state is missing that one executor has
written where no other one looks.
"""

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
from job.settings import JobSettings
from job.spark.executors import core_count, executor_count
from job.waiting import wait_until

# A container that is scheduled first, its image being there.
EXECUTOR_SECONDS = 60.0
# Between the first executor and the others.
OTHERS_SECONDS = 10.0
_POLL_SECONDS = 0.1

# Of what is pickled here and read there.
_PACKAGES = ("streamjoin", "pyspark", "confluent-kafka", "pyarrow")

_log = structlog.get_logger()


def check_is_shared(checkpoint: Folder, settings: JobSettings) -> None:
    """CheckpointError where executors would write state to a folder of their own machine."""
    if checkpoint.scheme == "file" and not settings.checkpoint_is_shared:
        raise CheckpointError(
            f"the checkpoint {checkpoint.root} is a folder of this machine, and Spark's executors "
            f"run on others ({settings.spark_master}): each would write its part of the state to "
            "its own disk. Name a folder on hdfs: or s3a: in `checkpoint`; or, where all of them "
            "have the same file system mounted there, say STREAMJOIN_CHECKPOINT_IS_SHARED=true"
        )


def check_partitions_are_chosen(settings: JobSettings) -> None:
    """SetupError at a first start that would take the cores of the driver for the cluster's."""
    if settings.state_partitions is None:
        raise SetupError(
            "on a cluster STREAMJOIN_STATE_PARTITIONS has to say into how many parts the join "
            "state is split: the checkpoint keeps it for good, and more cores than that are never "
            "used. Take as many as the executors may ever have"
        )


def wait_for_executors(spark: SparkSession, state_partitions: int) -> None:
    """For the first as long as it takes; for as many cores as the state has partitions a little:
    a partition stays where it was first, and would leave those that come later without work.

    QueryError, to be tried again, where none comes.
    """
    if not wait_until(lambda: executor_count(spark) > 0, EXECUTOR_SECONDS, _POLL_SECONDS):
        raise QueryError(
            f"no executor registered within {EXECUTOR_SECONDS:.0f} s at "
            f"{spark.sparkContext.master}: check that its workers are running, and have the free "
            "cores and memory that an executor needs (spark.executor.cores, spark.executor.memory)",
            retryable=True,
        )
    enough = wait_until(
        lambda: core_count(spark) >= state_partitions, OTHERS_SECONDS, _POLL_SECONDS
    )
    if not enough:
        _log.warning("few_cores", cores=core_count(spark), state_partitions=state_partitions)


def check_executors(spark: SparkSession, checkpoint: Folder) -> None:
    """QueryError where an executor cannot run this job, CheckpointError where it does not see the
    checkpoint."""
    with _file_for_all(checkpoint) as asked:
        for problem in _problems(spark, asked):
            raise problem


@contextmanager
def _file_for_all(checkpoint: Folder) -> Iterator[str | None]:
    """The path of a file that all who have the checkpoint in common see; None where its file
    system is one that each reaches by the same address."""
    if checkpoint.scheme != "file":
        yield None
        return
    name = f"seen-{uuid.uuid4().hex}.json"
    checkpoint.write(name, {})
    try:
        yield urlsplit(checkpoint.path(name)).path
    finally:
        checkpoint.remove(name)


def _problems(spark: SparkSession, asked: str | None) -> Iterator[StreamjoinError]:
    """Each core is asked about twice, so that no executor is left out."""
    context = spark.sparkContext
    tasks = 2 * context.defaultParallelism
    try:
        answers = context.parallelize(range(tasks), tasks).map(partial(_answer, asked)).collect()
    except PySparkException as error:
        raise QueryError(_not_run(error), retryable=False) from None
    here = _versions()
    for host, there, problem in answers:
        if there != here:
            yield QueryError(
                f"the executor on {host} has {_told(there)}, and this job {_told(here)}: install "
                "the same there, or name with PYSPARK_PYTHON the Python that has it",
                retryable=False,
            )
        if problem is not None:
            yield CheckpointError(
                f"the executor on {host} {problem} {asked}, which the job has just written: the "
                "checkpoint is not on a file system that all of them share, in spite of "
                "STREAMJOIN_CHECKPOINT_IS_SHARED, or they run as users of whom one may not "
                "write there. Mount it alike everywhere, or name a folder on hdfs: or s3a:"
            )


def _answer(asked: str | None, _: int) -> tuple[str, dict[str, str], str | None]:
    """Of the executor's Python on which this runs: host, versions, what it cannot do."""
    return gethostname(), _versions(), None if asked is None else _problem(Path(asked))


def _problem(asked: Path) -> str | None:
    if not asked.exists():
        return "does not see"
    try:
        with tempfile.TemporaryFile(dir=asked.parent):
            return None
    except OSError as error:
        return f"may not write ({error.strerror}) beside"


def _versions() -> dict[str, str]:
    found = {}
    for name in _PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "none"
    return found


def _told(versions: dict[str, str]) -> str:
    return ", ".join(f"{name} {number}" for name, number in versions.items())


def _not_run(error: PySparkException) -> str:
    """With the last line of the stack trace that names an error."""
    lines = str(error).splitlines()
    reason = next(
        (line for line in reversed(lines) if re.match(r"\w+(\.\w+)*Error\b", line)), lines[0]
    )
    return (
        f"the executors' Python cannot run this job: {reason}. It must be the same Python with the "
        "same packages as here, this one among them: PYSPARK_PYTHON names it, and is the same "
        "path on all machines"
    )
