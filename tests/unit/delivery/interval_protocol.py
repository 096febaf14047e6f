"""The commit protocol of one transaction slot, an executable specification of the Java writer.

A micro-batch has fixed input offsets and a fixed watermark. It writes one transaction with its rows
and its marker, so the marker decides whether the batch is delivered. Both joins run micro-batches.
The dead letters of a micro-batch have a separate slot, in which only some batches write. There
`since` is greater than each batch id, so a missing marker of the previous batch is no error.

An interval (real-time mode) writes rows before Spark knows how far the interval reads, so it writes
many small transactions. Each contains, besides the rows, their ids: a *part* in the commit topic.
The last transaction contains the marker of the interval. An interval that was interrupted is
repeated by micro-batches, or by an interval if there is nothing to read. The repetition runs with
the watermark of the interval, so it computes the rows of the interval again, and perhaps more. It
does not write the rows whose ids are in a part. The marker of an interval does not decide whether
the batch is delivered, because the repetition may read more.

    interval 7       rows 1-3, part 0 | rows 4-5, part 1 | ...            | rows, part 9, marker 7
    cut and repeated rows 1-3, part 0 | rows 4-5, part 1 |
                     micro-batch 7    | the other rows, marker 7 with the fingerprint of its offsets

A producer is kept from batch to batch while the outcome of each of its transactions is known.
Otherwise the slot is opened again: the writer fences all other producers, then reads what they have
delivered.

The driver of intervals has two duties: see job/query/driver.py. A change of the join must know the
parts (job/delivery/delivered.py).

Pure: no Kafka, no clock. The job runs DeliveredParts.java and the writer in job/writer/. Tests
compare both with this module, and explore it on a modelled broker and a modelled Spark.
"""

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from enum import StrEnum, auto
from typing import Any

from job.delivery.commit_protocol import (
    NO_BATCH,
    AbortedError,
    Marker,
    NotDeliveredError,
    Result,
    UnavailableError,
    check_owner,
)
from job.delivery.delivered import Fence

INTERVAL = "interval"
"""Fingerprint of an interval and of its marker: an interval has no fixed input offsets."""


class DisagreementError(NotDeliveredError):
    """Checkpoint and marker contradict each other."""


START_AGAIN = (
    "set another folder in `checkpoint` and start with --new-query (rows now waiting in state are "
    "then not joined, and results may be delivered again)"
)
USE_OLDER_COPY = (
    "restore the newest copy; or run `streamjoin checkpoint backup SPEC FOLDER`, then `streamjoin "
    "checkpoint restore SPEC FOLDER --results-again`, to deliver the later results again"
)


@dataclass(frozen=True)
class Batch:
    """One batch of one slot."""

    batch_id: int
    fingerprint: str
    """Fingerprint of its input offsets. INTERVAL: the batch is an interval."""
    since: int
    """First batch of the checkpoint that this protocol delivers. Earlier batches may have no
    marker."""
    query_id: str

    @property
    def marker(self) -> Marker:
        return Marker(self.batch_id, self.fingerprint, self.query_id)


@dataclass(frozen=True)
class OutputRow:
    """A result or a dead letter. A repetition may find another match, and so another content."""

    id: str
    content: str = ""


@dataclass(frozen=True)
class Part:
    """Record of the commit topic with the ids of the rows of one transaction of an interval."""

    query_id: str
    batch_id: int
    """The interval."""
    number: int
    """The transactions of an interval in a slot have numbers from 0. The key of the record contains
    the number, so compaction keeps as many parts as the longest interval has."""
    ids: frozenset[str]


@dataclass(frozen=True)
class SlotContent:
    """Records of a slot in the commit topic."""

    marker: Marker | None
    """The newest one."""
    parts: tuple[Part, ...] = ()
    fences: tuple[Fence, ...] = ()


@dataclass(frozen=True)
class Opening:
    """The batch or the interval with which a slot is opened."""

    batch: Batch
    repeats: int | None = None
    """Batch id of the recorded interval that the run repeats. None: the run repeats none."""
    fence: int = 0
    """Fence number of the run: that of the checkpoint when the run began. 0: there was no fence."""
    is_first_attempt: bool = True
    """Whether Spark runs the task of the batch for the first time in this run of the query."""

    @property
    def is_interval(self) -> bool:
        return self.batch.fingerprint == INTERVAL

    @property
    def recovered(self) -> int:
        """The interval whose parts contain rows that the run computes again.

        The opened batch itself if the run repeats no interval, because Spark can run the task of an
        interval again.
        """
        return self.batch.batch_id if self.repeats is None else self.repeats

    @property
    def newest_interval(self) -> int:
        """The newest interval that can have begun, according to the checkpoint."""
        if self.is_interval or self.repeats is not None:
            return self.recovered
        return self.batch.batch_id - 1


@dataclass(frozen=True)
class Opened:
    """State of a slot after all other producers were fenced."""

    is_delivered: bool = False
    """Whether the micro-batch is delivered. Its rows are computed and dropped."""
    ids: frozenset[str] = frozenset()
    """Delivered rows. This batch, or a later one of the run, may compute them again, also if
    `is_delivered`."""
    next_part: int = 0
    """Number of the next part, greater than those of the recovered parts: these must not be
    overwritten."""


def opened(opening: Opening, content: SlotContent) -> Opened:
    """What the run may write. If nothing, raises DisagreementError or TakenOverError."""
    batch, marker = opening.batch, content.marker
    _check_run(opening, content)
    own = [part for part in content.parts if part.query_id == batch.query_id]
    _check_intervals(opening, marker, own)
    recovered = [part for part in own if part.batch_id == opening.recovered]
    return Opened(
        is_delivered=_is_delivered(batch, marker),
        ids=frozenset(row_id for part in recovered for row_id in part.ids),
        next_part=max((part.number + 1 for part in recovered), default=0),
    )


def decided(opening: Opening, content: SlotContent) -> Opened | None:
    """What the run may write, if the records that are read before producers are fenced show that
    the batch is delivered. None: they do not.

    Raises the errors of `opened` if no further record could allow the run to write. So a job that
    was replaced ends without fencing the job that replaced it.
    """
    _check_run(opening, content)
    marker = content.marker
    if marker is None or marker.batch_id < opening.batch.batch_id:
        return None  # Newer markers may be missing.
    known = opened(opening, content)
    return known if known.is_delivered else None


def _check_run(opening: Opening, content: SlotContent) -> None:
    """Raises TakenOverError or DisagreementError if another query, or a later run of this one, has
    replaced the run."""
    query_id = opening.batch.query_id
    if content.marker is not None:
        check_owner(query_id, content.marker)
    own = [fence.number for fence in content.fences if fence.query_id == query_id]
    newest = max(own, default=0)
    if newest > opening.fence:
        raise DisagreementError(
            f"the commit topic has fence {newest} of the query, and this run began with fence "
            f"{opening.fence}: another job runs the query, or the checkpoint is an older copy. End "
            f"the other job. If there is none, {USE_OLDER_COPY}"
        )


def _check_intervals(opening: Opening, marker: Marker | None, parts: list[Part]) -> None:
    """Raises DisagreementError if an interval has begun that the checkpoint does not contain."""
    begun = [part.batch_id for part in parts]
    if marker is not None and marker.fingerprint == INTERVAL:
        begun.append(marker.batch_id)
    newest = max(begun, default=-1)
    if newest > opening.newest_interval:
        raise DisagreementError(
            f"the next batch of the checkpoint is {opening.batch.batch_id}, but results of "
            f"interval {newest} were already delivered: the checkpoint is an older copy. To "
            f"continue, {USE_OLDER_COPY}"
        )


def _is_delivered(batch: Batch, marker: Marker | None) -> bool:
    """Whether `marker`, the newest of the slot, is that of the micro-batch.

    Raises DisagreementError if it belongs neither to the batch nor to the previous batch.
    """
    newest = NO_BATCH if marker is None else marker.batch_id
    if newest > batch.batch_id:
        raise DisagreementError(
            f"the next batch of the checkpoint is {batch.batch_id}, but batch {newest} was already "
            f"delivered: the checkpoint is an older copy. To continue, {USE_OLDER_COPY}"
        )
    if marker is not None and newest == batch.batch_id:
        if marker.fingerprint == INTERVAL:
            return False
        if marker.fingerprint != batch.fingerprint:
            raise DisagreementError(
                f"batch {batch.batch_id} was delivered from other input offsets than those in the "
                "checkpoint: the checkpoint was changed, or is an older copy. To continue, "
                f"{USE_OLDER_COPY}"
            )
        return True
    if batch.batch_id > batch.since and newest != batch.batch_id - 1:
        found = "has no marker" if newest == NO_BATCH else f"ends with batch {newest}"
        raise DisagreementError(
            f"batch {batch.batch_id - 1} was delivered, but its marker is missing (the commit "
            f"topic {found}): the topic may have been deleted or renamed. Restore it. To continue "
            "without it, run with `delivery: at_least_once` until a batch has ended (its results "
            f"may be delivered twice), then with exactly_once again; or {START_AGAIN}"
        )
    return False


@dataclass
class Slot:
    """State that an executor keeps between the batches of a run."""

    ended: int | None = None
    """The last batch, if the outcome of all its transactions is known. None: the slot must be
    opened, also after a batch that was skipped."""
    ids: frozenset[str] = frozenset()

    def continues_with(self, opening: Opening) -> bool:
        """Whether the producer of the previous batch is still the only one. Another executor may
        have written batches since then, or may have begun this one."""
        return self.ended == opening.batch.batch_id - 1 and opening.is_first_attempt


class Step(StrEnum):
    PEEK_SLOT = auto()
    """Return the SlotContent that is committed. May miss records that are being committed."""
    READ_SLOT = auto()
    """Return the SlotContent. Reads everything that was in the partition when the step began."""
    INIT = auto()
    """Create a producer and fence all others of the slot: each of their transactions is then
    committed or aborted."""
    TAKE_ROWS = auto()
    """Return the next OutputRows, and whether they are the last ones of the batch. In an
    interval: wait for rows until the commit interval is over."""
    BEGIN = auto()
    COMMIT = auto()
    """Return whether a connection of the producer was closed before the answer to a request. Then
    the client may have sent the commit again. If the first request arrives later, it commits the
    beginning of the next transaction (KIP-890, which Kafka's client implements from 4.0 on)."""
    ABORT = auto()
    """Best effort: without it, readers wait for the next INIT."""
    DROP_ROWS = auto()
    """Compute the rows without writing them: Spark commits the state after the last one."""


@dataclass(frozen=True)
class BeginRows:
    """The join begins the batch."""

    delivered: frozenset[str]
    """Ids that the interrupted interval has delivered, which the run repeats. The join repeats what
    they show, although its watermark is that of the begin, and it may find other matches: a row
    that was late is late, and a row with a result that names no match has no other result."""


@dataclass(frozen=True)
class WriteRows:
    rows: tuple[OutputRow, ...]


@dataclass(frozen=True)
class WritePart:
    part: Part


@dataclass(frozen=True)
class WriteMarker:
    marker: Marker


@dataclass(frozen=True)
class WriteFence:
    fence: Fence


AnyStep = Step | BeginRows | WriteRows | WritePart | WriteMarker | WriteFence


def fence_slot(fence: Fence) -> Generator[AnyStep, Any, None]:
    """Yields steps as `deliver` does. Afterwards only runs with this or a greater number write."""
    yield Step.INIT
    yield Step.BEGIN
    yield WriteFence(fence)
    yield Step.COMMIT


def deliver(opening: Opening, slot: Slot) -> Generator[AnyStep, Any, Result]:
    """Yields the next step, and receives its result.

    The caller throws the NotDeliveredError of a step that fails. The run then ends: Spark reruns
    the batch in the next run of the query, and the next opening decides what is delivered.
    """
    batch = opening.batch
    known = Opened(ids=slot.ids)
    if not slot.continues_with(opening):
        known = yield from _open(opening)
    slot.ended, slot.ids = None, known.ids
    yield BeginRows(known.ids)
    if known.is_delivered:
        yield Step.DROP_ROWS
        return Result.SKIPPED
    write = _write_interval if opening.is_interval else _write_micro_batch
    try:
        was_sent_twice = yield from write(batch, known)
    except AbortedError:
        yield Step.ABORT
        raise
    slot.ended = None if was_sent_twice else batch.batch_id
    return Result.COMMITTED


def _open(opening: Opening) -> Generator[AnyStep, Any, Opened]:
    if (known := decided(opening, (yield Step.PEEK_SLOT))) is not None:
        return known
    yield Step.INIT
    return opened(opening, (yield Step.READ_SLOT))


def _write_micro_batch(batch: Batch, known: Opened) -> Generator[AnyStep, Any, bool]:
    yield Step.BEGIN
    is_last = False
    while not is_last:
        rows, is_last = yield Step.TAKE_ROWS
        yield WriteRows(_new(rows, known))
    yield WriteMarker(batch.marker)
    was_sent_twice: bool = yield Step.COMMIT
    return was_sent_twice


def _write_interval(batch: Batch, known: Opened) -> Generator[AnyStep, Any, bool]:
    number, was_sent_twice, is_last = known.next_part, False, False
    while not is_last:
        taken, is_last = yield Step.TAKE_ROWS
        rows = _new(taken, known)
        if not rows and not is_last:
            continue
        if was_sent_twice:
            raise UnavailableError("a connection to the broker was closed during a commit")
        yield Step.BEGIN
        if rows:
            yield WriteRows(rows)
            ids = frozenset(map(_recorded, rows))
            yield WritePart(Part(batch.query_id, batch.batch_id, number, ids))
            number += 1
        if is_last:
            yield WriteMarker(batch.marker)
        was_sent_twice = yield Step.COMMIT
    return was_sent_twice


def _new(rows: Sequence[OutputRow], known: Opened) -> tuple[OutputRow, ...]:
    """Rows that are not delivered yet."""
    return tuple(row for row in rows if _recorded(row) not in known.ids)


def _recorded(row: OutputRow) -> str:
    """What a part contains of a row: not its content, which a repetition may change."""
    return row.id
