"""The commit protocol of one state partition in the real-time engine: an executable specification.

An interval writes rows before Spark knows how far the interval reads, so it writes many small
transactions. Each contains, besides the rows, their ids: a *part* in the commit topic. The last
transaction contains the marker of the interval. An interval that was interrupted is repeated by
micro-batches, or by an interval if there is nothing to read. The repetition runs with the watermark
of the interval, so it computes the rows of the interval again, and perhaps more. It does not write
the rows whose ids are in a part.

    interval 7       rows 1-3, part 0 | rows 4-5, part 1 | ...            | rows, part 9, marker 7
    cut and repeated rows 1-3, part 0 | rows 4-5, part 1 |
                     micro-batch 7    | the other rows, marker 7 with the fingerprint of its offsets

A micro-batch has fixed input offsets and a fixed watermark: it writes one transaction, as in
commit_protocol.py, and its marker decides whether it is delivered. The marker of an interval does
not decide that, because the repetition may read more.

A producer is kept from batch to batch while the outcome of each of its transactions is known.
Otherwise the slot is opened again: the writer fences all other producers, then reads what they have
delivered.

Correctness depends on three duties of the driver:

- The driver records an interval and its watermark before any row of the interval can be written. It
  replaces the record only after Spark has committed the interval and all that repeats the interval.
- Before the driver records how far a cut interval is repeated, it increments the fence number in
  the checkpoint, and fences the producers of all slots. The writers of the interval may still run:
  a record that they read later would be repeated with a later watermark, which may make it late.
  The fence commits its number in each slot. A driver that has lost its lease may open a slot only
  after the fence: it then reads a number greater than that of its run, and writes nothing.
  A run reads its number before the rest of the checkpoint. If another job replaces the run
  meanwhile, the number of the run is the smaller one.
- No batch or interval after a recorded interval has an earlier watermark than the recorded one,
  even if there was nothing to repeat.

A change of the join (query/changing.py) continues after the last batch of the query with another
query, which does not know the parts. So the change fences the producers, then reads what they have
delivered (`Delivered`): until an interval is repeated completely, no other query may continue. A
change also checks this before it stops the query (`must_repeat`). Open transactions of the query
and of other joins hide records. All parts of an interrupted interval are before the fence of the
start that repeats it, so the check waits until it reads this fence. Then it waits until Spark has
committed the planned batch, or the interval that has ended: after a start they can be delivered in
part, and not begun again.

Pure: no Kafka, no clock. DeliveredParts.java and the writer in job/real_time/ run it; tests compare
both, and explore this module on a modelled broker and a modelled Spark.
"""

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from enum import StrEnum, auto
from typing import Any

from job.delivery.commit_protocol import (
    NO_BATCH,
    USE_OLDER_COPY,
    AbortedError,
    Batch,
    DisagreementError,
    Marker,
    Result,
    UnavailableError,
    check_owner,
    is_delivered,
    is_not_before,
)

INTERVAL = "interval"
"""Fingerprint of an interval and of its marker: an interval has no fixed input offsets."""


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
class Fence:
    """Record of the commit topic: runs of the query with a smaller number may not write."""

    query_id: str
    number: int
    """Counts the fences of the query from 1."""


@dataclass(frozen=True)
class SlotContent:
    """Records of a slot in the commit topic."""

    marker: Marker | None
    """The newest one."""
    parts: tuple[Part, ...] = ()
    fences: tuple[Fence, ...] = ()


@dataclass(frozen=True)
class Delivered:
    """What a query has delivered in all slots."""

    batch_id: int
    """The newest batch or interval of which the query has delivered anything. NO_BATCH: none."""
    interval_id: int
    """The newest interval of which the query has delivered a part. NO_BATCH: none."""
    fence: int = 0
    """The newest fence of the query that is visible in every slot. 0: none."""
    fenced_interval_id: int = NO_BATCH
    """The newest interval with a part before the newest fence of a slot. NO_BATCH: none."""

    def has_part_of(self, interval: int) -> bool:
        return self.interval_id >= interval

    def must_repeat(self, interval: int, fence: int, *, in_intervals: bool) -> bool | None:
        """Whether the running query repeats an interval that was interrupted after it had delivered
        some rows. None: an open transaction may hide these rows.

        `interval`: the recorded one. `fence`: the number in the checkpoint. `in_intervals`: whether
        the run is one of intervals. The recorded interval then only runs, or it repeats the one
        with its number: parts of that one are before the fence of the start.
        """
        known = self.fenced_interval_id if in_intervals else self.interval_id
        if known >= interval:
            return True
        return False if self.fence >= fence else None

    def unfinished(self, last_batch: int, repeats: int | None) -> int | None:
        """The batch or interval with delivered rows that are not all in the input of `last_batch`
        and of the batches before it. None: another query may continue after `last_batch`.

        `last_batch`: the last one that Spark has committed. `repeats`: the interval whose
        repetition Spark has not committed completely.
        """
        if self.batch_id > last_batch:
            return self.batch_id
        return repeats if repeats is not None and self.has_part_of(repeats) else None


@dataclass(frozen=True)
class Opening:
    """The batch or the interval with which a slot is opened."""

    batch: Batch
    """The fingerprint of an interval is INTERVAL."""
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
    """Delivered rows. This batch, or a later one of the run, may compute them again."""
    next_part: int = 0
    """Number of the next part, greater than those of the recovered parts: these must not be
    overwritten."""


def opened(opening: Opening, content: SlotContent) -> Opened:
    """What the run may write. If nothing, raises DisagreementError or TakenOverError."""
    batch, marker = opening.batch, content.marker
    _check_run(opening, content)
    own = [part for part in content.parts if part.query_id == batch.query_id]
    _check_intervals(opening, marker, own)
    is_of_this_interval = marker is not None and (
        marker.batch_id == batch.batch_id and marker.fingerprint == INTERVAL
    )
    if not is_of_this_interval and is_delivered(batch, marker):
        return Opened(is_delivered=True)
    recovered = [part for part in own if part.batch_id == opening.recovered]
    return Opened(
        ids=frozenset(row_id for part in recovered for row_id in part.ids),
        next_part=max((part.number + 1 for part in recovered), default=0),
    )


def is_decided(opening: Opening, content: SlotContent) -> bool:
    """Whether the records that are read before producers are fenced show that the batch is
    delivered.

    Raises the errors of `opened` if no further record could allow the run to write. So a job that
    was replaced ends without fencing the job that replaced it.
    """
    _check_run(opening, content)
    marker, batch = content.marker, opening.batch
    if marker is None or not is_not_before(batch, marker):
        return False
    return opened(opening, content).is_delivered


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


@dataclass
class Slot:
    """State that the executor of a state partition keeps between the batches of a run."""

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
    """Return the ids of the next rows, and whether they are the last ones of the batch. In an
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
class WriteRows:
    ids: tuple[str, ...]


@dataclass(frozen=True)
class WritePart:
    part: Part


@dataclass(frozen=True)
class WriteMarker:
    marker: Marker


@dataclass(frozen=True)
class WriteFence:
    fence: Fence


AnyStep = Step | WriteRows | WritePart | WriteMarker | WriteFence


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
    if is_decided(opening, (yield Step.PEEK_SLOT)):
        return Opened(is_delivered=True)
    yield Step.INIT
    return opened(opening, (yield Step.READ_SLOT))


def _write_micro_batch(batch: Batch, known: Opened) -> Generator[AnyStep, Any, bool]:
    yield Step.BEGIN
    is_last = False
    while not is_last:
        ids, is_last = yield Step.TAKE_ROWS
        yield WriteRows(_new(ids, known))
    yield WriteMarker(batch.marker)
    was_sent_twice: bool = yield Step.COMMIT
    return was_sent_twice


def _write_interval(batch: Batch, known: Opened) -> Generator[AnyStep, Any, bool]:
    number, was_sent_twice, is_last = known.next_part, False, False
    while not is_last:
        taken, is_last = yield Step.TAKE_ROWS
        ids = _new(taken, known)
        if not ids and not is_last:
            continue
        if was_sent_twice:
            raise UnavailableError("a connection to the broker was closed during a commit")
        yield Step.BEGIN
        if ids:
            yield WriteRows(ids)
            yield WritePart(Part(batch.query_id, batch.batch_id, number, frozenset(ids)))
            number += 1
        if is_last:
            yield WriteMarker(batch.marker)
        was_sent_twice = yield Step.COMMIT
    return was_sent_twice


def _new(ids: Sequence[str], known: Opened) -> tuple[str, ...]:
    """Rows that are not delivered yet."""
    return tuple(row_id for row_id in ids if row_id not in known.ids)
