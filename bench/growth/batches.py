"""The batches that the job reports, and the figures derived from them."""

import contextlib
import os
import socket
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from pathlib import Path

from bench.processes import Sample, peak_memory, spent
from job.protocol.calls import Progress
from job.protocol.control import Response
from job.protocol.progress import BatchProgress
from job.protocol.results import ProgressResult

_ANSWER_SECONDS = 10.0


@dataclass(frozen=True)
class Point:
    """One batch, at the size of the state after it."""

    batch_id: int
    rows_before: int
    """Input rows of all batches before it, both sides."""
    rows: int
    """Input rows of this one."""
    state_rows: int
    seconds: float
    """From the end of the previous batch to its own: Spark's work between batches included."""
    cpu_seconds: float
    memory_bytes: int
    """The highest resident memory of the process tree meanwhile."""
    batch_ms: float
    commit_ms: float
    """This and the two below are sums over the tasks, which run in parallel."""
    update_ms: float
    evict_ms: float
    evicted_rows: int
    rocksdb: dict[str, float]
    """RocksDB's counters of this batch, by Spark's names."""

    @property
    def rows_per_second(self) -> float:
        return self.rows / self.seconds

    @property
    def rows_per_cpu_second(self) -> float:
        return self.rows / self.cpu_seconds


@dataclass(frozen=True)
class Steady:
    """Batches that store as many rows as they evict, taken together. Times are medians."""

    batches: int
    state_rows: int
    rows_per_second: float
    rows_per_cpu_second: float
    batch_ms: float
    commit_ms: float
    evict_ms: float
    evicted_rows: int
    """Time per batch, like evict_ms."""


class Batches:
    """Collects all batches of a job while it runs: the job keeps the last hundred."""

    def __init__(self, control_socket: Path) -> None:
        self._socket = control_socket
        self._batches: dict[int, BatchProgress] = {}

    @property
    def ended(self) -> list[BatchProgress]:
        return [self._batches[batch_id] for batch_id in sorted(self._batches)]

    @property
    def input_rows(self) -> int:
        return sum(batch.input_records for batch in self._batches.values())

    def have_read(self, left: int, right: int) -> bool:
        """Whether this many records of both sides have been read."""
        if not self._batches:
            return False
        last = self._batches[max(self._batches)]
        read = ((last.left, left), (last.right, right))
        return all(sum(side.end_offsets.values()) >= records for side, records in read)

    def look(self) -> None:
        """Query the job; one that does not answer is starting or busy."""
        request = Progress().model_dump_json().encode() + b"\n"
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(_ANSWER_SECONDS)
            # The path of a socket must be short; relative to this folder it is.
            connection.connect(os.path.relpath(self._socket))
            connection.sendall(request)
            line = connection.makefile("rb").readline()
            response = Response.model_validate_json(line)
            progress = ProgressResult.model_validate(response.result)
            self.note(progress.batches)

    def note(self, batches: Sequence[BatchProgress]) -> None:
        self._batches |= {batch.batch_id: batch for batch in batches}


def points(batches: Sequence[BatchProgress], samples: list[Sample]) -> Iterator[Point]:
    """Each batch but the first, which includes the start of the job."""
    read = accumulate(batch.input_records for batch in batches)
    for rows_before, (before, batch) in zip(read, pairwise(batches), strict=False):
        since, until = before.ended_at.timestamp(), batch.ended_at.timestamp()
        if not batch.input_records or batch.state_rows is None:
            continue
        yield Point(
            batch_id=batch.batch_id,
            rows_before=rows_before,
            rows=batch.input_records,
            state_rows=batch.state_rows,
            seconds=until - since,
            cpu_seconds=spent(samples, since, until).tree,
            memory_bytes=peak_memory(samples, since, until),
            batch_ms=1_000 * batch.duration_seconds,
            commit_ms=1_000 * batch.state_commit_seconds,
            update_ms=1_000 * batch.state_update_seconds,
            evict_ms=1_000 * batch.state_removal_seconds,
            evicted_rows=batch.state_rows_removed,
            rocksdb={
                name: value
                for name, value in batch.state_custom.items()
                if name.startswith("rocksdb")
            },
        )


def steady(points: Sequence[Point], *, rows_before: int) -> Steady:
    """The batches that began after this many rows had been read."""
    selected = [point for point in points if point.rows_before >= rows_before]
    if not selected:
        raise ValueError(f"no batch began after {rows_before:,} rows: no steady batches to measure")
    rows = sum(point.rows for point in selected)
    return Steady(
        batches=len(selected),
        state_rows=round(statistics.median(point.state_rows for point in selected)),
        rows_per_second=rows / sum(point.seconds for point in selected),
        rows_per_cpu_second=rows / sum(point.cpu_seconds for point in selected),
        batch_ms=statistics.median(point.batch_ms for point in selected),
        commit_ms=statistics.median(point.commit_ms for point in selected),
        evict_ms=statistics.median(point.evict_ms for point in selected),
        evicted_rows=round(statistics.median(point.evicted_rows for point in selected)),
    )
