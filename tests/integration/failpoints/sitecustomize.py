"""Python imports this module at its start if this folder is on PYTHONPATH. The job then dies at the
failpoint with all its processes, stops, or raises an error.

The file named by STREAMJOIN_TEST_FAILPOINT contains `<action> <point>`; it is removed when the
action has happened, once. The product has no failpoints: this module wraps its classes. All points
are in the driver. Inside of a transaction, tests/faults/proxy.py catches a request of the job.

Some waits that take minutes in production can be shortened, in seconds:
STREAMJOIN_TEST_COMMIT_SECONDS, the wait for the answer to a commit;
STREAMJOIN_TEST_TRANSACTION_SECONDS, after which the broker aborts an open transaction; and
STREAMJOIN_TEST_MAINTENANCE_SECONDS, how often Spark uploads snapshots of its state.
STREAMJOIN_TEST_WARM_UP_RECORDS is the number of records from which a change has a warm-up;
STREAMJOIN_TEST_FIRST_BATCH_RECORDS the number of records of a side in the first batch of a run.
"""

import os
import signal
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

ARMED = Path(os.environ.get("STREAMJOIN_TEST_FAILPOINT", "/nonexistent"))
COMMIT_SECONDS = os.environ.get("STREAMJOIN_TEST_COMMIT_SECONDS")
TRANSACTION_SECONDS = os.environ.get("STREAMJOIN_TEST_TRANSACTION_SECONDS")
MAINTENANCE_SECONDS = os.environ.get("STREAMJOIN_TEST_MAINTENANCE_SECONDS")
WARM_UP_RECORDS = os.environ.get("STREAMJOIN_TEST_WARM_UP_RECORDS")
FIRST_BATCH_RECORDS = os.environ.get("STREAMJOIN_TEST_FIRST_BATCH_RECORDS")


def reached(point: str) -> bool:
    try:
        return ARMED.read_text().split()[1] == point
    except (FileNotFoundError, IndexError):
        return False


def happen() -> None:
    """Kill, or stop, the job with all its processes, this one last. Or raise an error that the job
    does not know."""
    import psutil

    action = ARMED.read_text().split()[0]
    if action == "raise":
        ARMED.unlink()
        raise ZeroDivisionError("planted")
    number = {"kill": signal.SIGKILL, "stop": signal.SIGSTOP}[action]
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            process.send_signal(number)
    # A test that waits for this may thaw the job at once: no process may still have to be stopped
    # then.
    ARMED.unlink()
    os.kill(os.getpid(), number)


def shorten_waits() -> None:
    from job.delivery import producers
    from job.plan import real_time, tuning

    if TRANSACTION_SECONDS is not None:
        tuning.TRANSACTION_TIMEOUT_SECONDS = int(TRANSACTION_SECONDS)
        # A producer of the driver refuses a message timeout longer than that of its transactions.
        timeout_ms = int(TRANSACTION_SECONDS) * 1000
        producers.SETTINGS = {**producers.SETTINGS, "message.timeout.ms": timeout_ms}
    if COMMIT_SECONDS is not None:
        timeout = {"kafka.request.timeout.ms": str(int(float(COMMIT_SECONDS) * 1000))}
        real_time.TRANSACTION_OPTIONS = {**real_time.TRANSACTION_OPTIONS, **timeout}
    if MAINTENANCE_SECONDS is not None:
        interval = {"spark.sql.streaming.stateStore.maintenanceInterval": f"{MAINTENANCE_SECONDS}s"}
        tuning.CONF = {**tuning.CONF, **interval}


def wrap_the_driver() -> None:
    from job.change import warm_up
    from job.delivery.sink import BatchSink
    from job.event_time import fair_reading
    from job.query.stats import QueryStats

    shorten_waits()
    if WARM_UP_RECORDS is not None:
        warm_up.RECORDS_MIN = int(WARM_UP_RECORDS)
    if FIRST_BATCH_RECORDS is not None:
        fair_reading.FIRST_BATCH_RECORDS = int(FIRST_BATCH_RECORDS)

    write, batch = BatchSink._write, QueryStats.batch

    def wrote(self: Any, records: Any, batch_id: int) -> None:
        if batch_id > 0 and reached("after_offset_log"):
            happen()
        write(self, records, batch_id)
        if batch_id > 0 and reached("after_all_commits"):
            happen()

    letters = QueryStats.dead_letters

    def counted(self: Any, counts: Any) -> None:
        letters(self, counts)
        if counts and reached("after_dead_letters"):
            happen()

    def ended(self: Any, progress: str) -> None:
        if reached("after_commit_log"):
            happen()
        batch(self, progress)

    deliver = BatchSink._deliver

    def delivered(self: Any, records: Any, batch_id: int) -> None:
        deliver(self, records, batch_id)
        if reached(f"after_delivery_of_{batch_id}"):
            happen()

    BatchSink._deliver = delivered  # type: ignore[method-assign]
    BatchSink._write = wrote  # type: ignore[method-assign]
    QueryStats.dead_letters = counted  # type: ignore[method-assign]
    QueryStats.batch = ended  # type: ignore[method-assign]


def wrap_the_change() -> None:
    """The points at which the disk, or the commit topic, differs from that of the point before."""
    from job.change import cli, files, hand_over
    from job.checkpoint.checkpoint import Checkpoint
    from job.delivery import ownership

    die_after(cli, "_stop_job", "old_stopped")
    die_before(Checkpoint, "start_at", "replay_written")
    die_after(files, "prepare_new", "new_prepared")
    die_after(hand_over, "prepare_commit_topic", "commit_topic_extended")
    die_after(files, "allow_return", "return_allowed")
    die_after(ownership, "_take", "slot_taken_over")
    die_after(hand_over, "_take_name_over", "name_taken_over")
    die_after(files, "write_successor", "handed_over")


def die_before(owner: Any, name: str, point: str) -> None:
    call = getattr(owner, name)

    def wrapped(*arguments: Any) -> Any:
        if reached(point):
            happen()
        return call(*arguments)

    setattr(owner, name, wrapped)


def die_after(owner: Any, name: str, point: str) -> None:
    call = getattr(owner, name)

    def wrapped(*arguments: Any) -> Any:
        result = call(*arguments)
        if reached(point):
            happen()
        return result

    setattr(owner, name, wrapped)


if sys.orig_argv[1:4] == ["-m", "job", "run"]:
    wrap_the_driver()
elif sys.orig_argv[1:4] == ["-m", "job", "change"]:
    wrap_the_change()
