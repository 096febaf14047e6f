"""Small jobs for the tests of the sidecar: they hold a status and serve the real protocol."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from job.control import Verb, control_socket
from job.errors import ConflictError
from job.progress import (
    BatchProgress,
    Failure,
    JobStatus,
    QueryState,
    SideProgress,
    Totals,
)

NOW = datetime(2026, 11, 20, 12, 0, 0, tzinfo=UTC)
NOW_SECONDS = NOW.timestamp()
NO_BROKER = Failure(
    code="broker", message="no broker answers at localhost:9092", retryable=True, at=NOW
)


class SmallJob:
    """Does what it is told at once; `allowed` are its verbs."""

    def __init__(self, status: JobStatus, *, allowed: tuple[str, ...] | None = None) -> None:
        self.current = status
        self.allowed = allowed
        self.commands: list[tuple[Verb, str]] = []

    def status(self) -> JobStatus:
        return self.current

    def command(self, verb: Verb, by: str) -> None:
        if self.allowed is not None and verb not in self.allowed:
            message = f"{verb} is not possible while the query is {self.current.state}"
            raise ConflictError(message, allowed=list(self.allowed))
        self.commands.append((verb, by))
        states: dict[Verb, QueryState] = {
            "pause": QueryState.PAUSED,
            "resume": QueryState.RUNNING,
            "stop": QueryState.STOPPED,
            "restart": QueryState.RESTARTING,
        }
        self.current = self.current.model_copy(update={"state": states[verb]})


def status(state: QueryState = QueryState.RUNNING, **fields: Any) -> JobStatus:
    """Of a query that has run no batch yet."""
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
    """Of a query that has run these batches, the last one just now."""
    totals = Totals()
    for done in batches:
        totals = totals.plus(done)
    last = batches[-1]
    known = {
        "query_id": last.query_id,
        "run_id": last.run_id,
        "last_batch": last,
        "last_progress_at": NOW,
        "totals": totals,
    }
    return status(**{**known, **fields})


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
            "late_records": 2,
            "state_rows": 400,
            "state_rows_updated": 50,
            "state_rows_removed": 10,
            "state_memory_bytes": 1_000_000,
            "state_update_seconds": 0.125,
            "state_removal_seconds": 0.0625,
            "state_commit_seconds": 0.25,
            "state_custom": {"rocksdbGetCount": 12.0},
            "watermark_ms": round(NOW_SECONDS * 1000) - 15_500,
            "left": side(),
            "right": side(
                records=10,
                null_keys=0,
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
            "bad_records": {"malformed_json": 3, "tombstone": 0},
            "event_time_max_ms": round(NOW_SECONDS * 1000) - 2_500,
            "end_offsets": {0: 90, 1: 100},
            "latest_offsets": {0: 100, 1: 105},
            **fields,
        }
    )


@contextmanager
def hung_job(path: Path, backlog: int = 5) -> Iterator[socket.socket]:
    """As a job under SIGSTOP: the kernel takes the connection, and nobody reads."""
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
