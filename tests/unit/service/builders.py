"""Small jobs for the tests of the service: they have a status and serve the real protocol."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from threading import Event
from typing import Any

from pydantic import BaseModel

from job.api.query import QueryView
from job.errors import CancelledError, ConflictError
from job.protocol.calls import Command, Read, Verb
from job.protocol.control import control_socket
from job.protocol.progress import BatchProgress, HeapUse, SideProgress
from job.protocol.reports import (
    BrokerReport,
    ChangeReport,
    LatencyReport,
    PartitionCount,
    SideCount,
    SideEventTimes,
    SideOffsets,
    StateCount,
)
from job.protocol.results import SpecFileResult
from job.protocol.status import Failure, JobStatus, QueryState
from job.protocol.totals import SideTotals, Totals
from job.spec.sides import SIDES

NOW = datetime(2026, 11, 20, 12, 0, 0, tzinfo=UTC)
NOW_SECONDS = NOW.timestamp()
NO_BROKER = Failure(
    code="broker", message="no broker answers at localhost:9092", retryable=True, at=NOW
)

# The commands of the page among those of job/control/transitions.py, which needs Spark.
_ALLOWED = {
    QueryState.RUNNING: ["pause", "resume", "stop", "restart"],
    QueryState.PAUSED: ["pause", "resume", "stop"],
    QueryState.STOPPED: ["stop", "resume"],
}

# For a job that answers only after the caller has disconnected.
WAITS = CancelledError("never seen")
WAIT_SECONDS_MAX = 60.0


class SmallJob:
    """Executes commands at once; `allowed`: the allowed ones, None: all."""

    def __init__(self, status: JobStatus, *, allowed: tuple[str, ...] | None = None) -> None:
        self.current = status
        self.allowed = allowed
        self.commands: list[tuple[Verb, str]] = []
        self.last_command: Any = None
        self.last_request: Any = None
        self.gone: Event | None = None
        self.answers: dict[str, BaseModel | Exception] = {
            "read_spec": SpecFileResult(message="join.yaml contains the running spec")
        }

    def status(self) -> JobStatus:
        return self.current

    def command(self, command: Command) -> None:
        verb = command.call
        if self.allowed is not None and verb not in self.allowed:
            message = f"{verb} is not possible while the query is {self.current.state}"
            raise ConflictError(message, allowed=list(self.allowed))
        self.commands.append((verb, command.by))
        states: dict[Verb, QueryState] = {
            "pause": QueryState.PAUSED,
            "resume": QueryState.RUNNING,
            "stop": QueryState.STOPPED,
            "restart": QueryState.RESTARTING,
            "reset": QueryState.STOPPED,
            "change": QueryState.RUNNING,
            "undo": QueryState.RUNNING,
            "cancel": QueryState.RUNNING,
        }
        state = states[verb]
        allowed = _ALLOWED.get(state, self.current.allowed_commands)
        self.current = self.current.model_copy(update={"state": state, "allowed_commands": allowed})
        self.last_command = command

    def read(self, request: Read, caller_gone: Event) -> BaseModel:
        self.gone = caller_gone
        self.last_request = request
        answer = self.answers[request.call]
        if answer is WAITS:
            caller_gone.wait(WAIT_SECONDS_MAX)
            raise CancelledError("the lookup was cancelled")
        if isinstance(answer, Exception):
            raise answer
        return answer


def status(state: QueryState = QueryState.RUNNING, **fields: Any) -> JobStatus:
    """Status of a query before its first batch."""
    return JobStatus(
        **{
            "name": "ad_attribution",
            "join_type": "left_outer",
            "delivery": "exactly_once",
            "state": state,
            "started_at": NOW,
            "state_since": NOW,
            "watermark_delay_ms": {"left": 10_000, "right": 11_500},
            **fields,
        }
    )


def status_after(*batches: BatchProgress, **fields: Any) -> JobStatus:
    """Status of a query after these batches, the last one just now."""
    totals = Totals(kept_back_results=3).with_skipped({"left": 7, "right": 0})
    for done in batches:
        totals = totals.plus(done)
    last = batches[-1]
    known = {
        "query_id": last.query_id,
        "run_id": last.run_id,
        "allowed_commands": _ALLOWED[QueryState.RUNNING],
        "idle": {"right": False},
        "last_batch": last,
        "last_progress_at": NOW,
        "totals": totals,
        "latency": LatencyReport(p50_seconds=0.4, p99_seconds=1.25),
        "change": ChangeReport(
            old_checkpoint="file:/old",
            phase="reading",
            records=9,
            records_left=4,
            possibly_late_records=2,
            offsets={"left": {"0": 5}, "right": {"0": 4}},
        ),
        "brokers": broker_report(),
        "state_count": state_count(),
        "event_times": {
            "left": event_times(totals.left.event_time_max_ms),
            "right": event_times(totals.right.event_time_max_ms),
        },
    }
    return status(**{**known, **fields})


def query_after(*, left: int, right: int) -> QueryView:
    """A query that has read this many records of each side."""
    totals = Totals(left=SideTotals(records=left), right=SideTotals(records=right))
    return QueryView.of(status(totals=totals), NOW)


def event_times(newest_ms: int | None, held_back_by: int | None = None) -> SideEventTimes:
    """Event times of a side with one read partition, 1."""
    partitions = {} if newest_ms is None else {1: newest_ms}
    return SideEventTimes(event_time_ms=newest_ms, held_back_by=held_back_by, partitions=partitions)


def batch(**fields: Any) -> BatchProgress:
    return BatchProgress(
        **{
            "batch_id": 7,
            "query_id": "query-1",
            "run_id": "run-2",
            "started_at": NOW,
            "duration_seconds": 0.5,
            "phase_seconds": {"add_batch": 0.25, "trigger_execution": 0.5},
            "output_records": 30,
            "unmatched_results": 4,
            "filtered_results": 1,
            "late_rows": 2,
            "state_rows": 400,
            "state_rows_updated": 50,
            "state_rows_removed": 10,
            "state_memory_bytes": 1_000_000,
            "state_update_seconds": 0.125,
            "state_removal_seconds": 0.0625,
            "state_commit_seconds": 0.25,
            "state_custom": {"rocksdbGetCount": 12.0},
            "heap": dict.fromkeys(SIDES, HeapUse(rows=200, slots_loaded=2, heap_probes=9)),
            "watermark_ms": round(NOW_SECONDS * 1000) - 15_500,
            "left": side(),
            "right": side(
                records=10,
                null_keys=0,
                duplicates=0,
                event_time_max_ms=round(NOW_SECONDS * 1000) - 4_000,
                end_offsets={0: 98, 1: 105},
            ),
            **fields,
        }
    )


def side(**fields: Any) -> SideProgress:
    return SideProgress(
        **{
            "records": 20,
            "null_keys": 1,
            "duplicates": 3,
            "bad_records": {"malformed_json": 3, "tombstone": 0},
            "event_time_max_ms": round(NOW_SECONDS * 1000) - 2_500,
            "end_offsets": {0: 90, 1: 100},
            "latest_offsets": {0: 100, 1: 105},
            **fields,
        }
    )


def broker_report(**fields: Any) -> BrokerReport:
    """Report whose read offsets are those of `batch`, from NOW."""
    return BrokerReport(
        **{
            "left": SideOffsets(
                topic="impressions",
                read={0: 90, 1: 100},
                earliest={0: 10, 1: 40},
                latest={0: 100, 1: 105},
            ),
            "right": SideOffsets(
                topic="clicks",
                new_topics=["clicks_eu"],
                read={0: 98, 1: 105},
                earliest={0: 0, 1: 105},
                latest={0: 100, 1: 105},
            ),
            "output": SideOffsets(topic="attributed", latest={0: 1_200, 1: 34}),
            "answered_at": NOW,
            **fields,
        }
    )


def just_polled(**fields: Any) -> BrokerReport:
    """As `broker_report`, from this moment: for tests that go through the service."""
    return broker_report(**{"answered_at": datetime.now(UTC), **fields})


def state_count(**fields: Any) -> StateCount:
    """Count of a left outer join with two state partitions."""

    def part(partition: int, rows: int, unmatched: int | None) -> PartitionCount:
        return PartitionCount(
            partition=partition, rows=rows, unmatched_rows=unmatched, event_time_min=NOW
        )

    return StateCount(
        **{
            "batch_id": 7,
            "counted_at": NOW,
            "duration_seconds": 0.75,
            "left": SideCount.of(
                [part(0, 100, 30), part(1, 60, 12)], [["a"], ["b"]], stored_ids=90
            ),
            "right": SideCount.of([part(0, 150, None), part(1, 90, None)], [["c"]]),
            **fields,
        }
    )


@contextmanager
def hung_job(path: Path, backlog: int = 5) -> Iterator[socket.socket]:
    """As a job under SIGSTOP: the kernel accepts the connection, and nobody reads."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen(backlog)
        yield listener


@contextmanager
def serving(
    path: Path, given: JobStatus, *, allowed: tuple[str, ...] | None = None
) -> Iterator[SmallJob]:
    job = SmallJob(given, allowed=allowed)
    with control_socket(path, job):
        yield job
