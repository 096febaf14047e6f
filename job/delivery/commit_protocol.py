"""How the rows of one batch get into Kafka once: the commit protocol of one state partition.

Rows and a marker are written in one transaction. The marker says which batch of the partition has
been delivered, so whoever runs a batch again, be it seconds or days later, can tell. No failure
needs to be judged right for that: each attempt begins with the marker.

One query at a time owns a name: the newest marker of each lane names the query that wrote it, and a
query continues only after one of its markers. A new query writes the first one with `taken_over`.

Pure: no Kafka, no clock. `delivered_once` yields the next step and is sent the step's result;
transactions.py and ownership.py perform the steps, and the tests perform them on a modelled broker.
"""

from collections.abc import Callable, Collection, Generator
from dataclasses import dataclass
from enum import StrEnum, auto

_START_AGAIN = (
    "name another folder in `checkpoint` and start with --new-query (rows now waiting in state are "
    "then not joined, and results may be delivered again)"
)


@dataclass(frozen=True)
class Marker:
    """That a batch of a state partition has been delivered, and which input it was made from."""

    batch_id: int
    fingerprint: str
    """Of the batch's input offsets."""
    query_id: str
    """Query that has delivered the batch."""

    @property
    def is_retired(self) -> bool:
        return self.batch_id >= RETIRED


NO_BATCH = -1
"""Batch id of the first marker of a query, which owns the lane and has delivered nothing."""
RETIRED = 2**62
"""Batch id that stops jobs of versions which took no other query's marker into account: they find
results of a later batch delivered, and refuse to go on."""


@dataclass(frozen=True)
class Batch:
    """One batch of one state partition."""

    batch_id: int
    fingerprint: str
    since: int
    """The first batch of the checkpoint that is delivered by this protocol: none before it has
    left a marker that one could count on."""
    query_id: str

    @property
    def marker(self) -> Marker:
        return Marker(self.batch_id, self.fingerprint, self.query_id)


class Step(StrEnum):
    LOOK = auto()
    """The newest marker of the partition that is committed; one about to be may be missed."""
    READ_MARKER = auto()
    """The same, None where there is none. All that was in the commit topic when the step began has
    to be read, whoever wrote it; the step fails where an open transaction hides the end."""
    INIT = auto()
    """With a new producer: fence all others of the same transactional id. When it has succeeded
    each transaction they had begun is committed or aborted, and they can begin no other."""
    BEGIN = auto()
    WRITE_ROWS = auto()
    WRITE_MARKER = auto()
    COMMIT = auto()
    ABORT = auto()
    """Best effort: whoever comes next aborts what is left open."""
    DROP_ROWS = auto()
    """The rows have to be taken all the same: the join's state is kept only of a batch whose rows
    have been taken to the last one."""


class Result(StrEnum):
    COMMITTED = auto()
    SKIPPED = auto()
    """Another attempt had delivered the batch before."""
    SETTLED = auto()
    """The answer to the commit was lost; the marker told that it had succeeded."""


class NotDeliveredError(Exception):
    """The batch is not known to be delivered. Base of what a step, or the protocol, raises."""


class UnavailableError(NotDeliveredError):
    """Nothing was begun: the broker did not answer, or not in time."""

    def __init__(self, message: str, *, retryable: bool = True) -> None:
        self.retryable = retryable
        super().__init__(message)


class AbortedError(NotDeliveredError):
    """The transaction cannot be committed."""

    def __init__(self, message: str, *, retryable: bool) -> None:
        self.retryable = retryable
        super().__init__(message)


class UnknownOutcomeError(NotDeliveredError):
    """The answer to the commit did not come."""


class FencedError(NotDeliveredError):
    """Another producer has taken over the transactional id."""


class DisagreementError(NotDeliveredError):
    """Checkpoint and marker contradict each other."""


class TakenOverError(NotDeliveredError):
    """The newest marker is another query's."""


def delivered_once(batch: Batch) -> Generator[Step, Marker | None, Result]:
    """Yields the next step; is sent a marker after LOOK and READ_MARKER, None after the others.

    A step that fails is told by throwing its NotDeliveredError. Returns only when the batch is
    known to be delivered.
    """
    # The first look fences nobody: whoever was left behind (a driver that was stopped and woke up
    # again) ends here, and does not take its successor's transaction with it.
    seen = yield Step.LOOK
    if seen is not None and is_not_before(batch, seen) and is_delivered(batch, seen):
        yield Step.DROP_ROWS
        return Result.SKIPPED
    # What the others have begun is decided only once they are fenced. Before each transaction: a
    # commit or abort that was delayed on its way cannot hit a later one then (KIP-890, which
    # librdkafka does not speak).
    yield Step.INIT
    if is_delivered(batch, (yield Step.READ_MARKER)):
        yield Step.DROP_ROWS
        return Result.SKIPPED
    try:
        yield Step.BEGIN
        yield Step.WRITE_ROWS
        yield Step.WRITE_MARKER
        yield Step.COMMIT
    except AbortedError:
        yield Step.ABORT
        raise
    except UnknownOutcomeError:
        # Decided by this, one way or the other; the rows are gone, so it is only looked at.
        yield Step.INIT
        if is_delivered(batch, (yield Step.READ_MARKER)):
            return Result.SETTLED
        raise
    return Result.COMMITTED


def taken_over(claim: Marker, replaces: Collection[str]) -> Generator[Step, Marker | None, Result]:
    """Make the query of `claim` the owner of a lane, in place of the queries in `replaces`.

    Yields and raises as `delivered_once`; TakenOverError if yet another query owns the lane. After
    it has returned, every LOOK finds the query's marker, so LOOK alone stops the replaced query.
    """

    def is_owned(marker: Marker | None) -> bool:
        if marker is None or marker.query_id in replaces:
            return False
        _check_owner(claim.query_id, marker)
        return True

    # Nothing is fenced unless the query may own the lane.
    if is_owned((yield Step.LOOK)):
        return Result.SKIPPED
    yield Step.INIT
    if is_owned((yield Step.READ_MARKER)):
        return Result.SKIPPED
    yield from _marker_written()
    # A commit is answered before readers see it: this read ends once they do.
    is_owned((yield Step.READ_MARKER))
    return Result.COMMITTED


def retired() -> Generator[Step, Marker | None, Result]:
    """End the writers of an older version, which had a transactional id and a marker key for each
    query. The steps are those of such an id and key.

    WRITE_MARKER writes RETIRED there. If the key is that of the present query, it writes the marker
    that was found, if any, under the present key in the same transaction.
    """
    yield Step.INIT
    found = yield Step.READ_MARKER
    if found is not None and found.is_retired:
        return Result.SKIPPED
    yield from _marker_written()
    return Result.COMMITTED


def _marker_written() -> Generator[Step, Marker | None, None]:
    try:
        yield from (Step.BEGIN, Step.WRITE_MARKER, Step.COMMIT)
    except AbortedError:
        yield Step.ABORT
        raise


def is_not_before(batch: Batch, marker: Marker) -> bool:
    """Whether a marker that LOOK has found decides about the batch: LOOK may miss newer ones."""
    return marker.batch_id >= batch.batch_id or marker.query_id != batch.query_id


def _check_owner(query_id: str, marker: Marker) -> None:
    if marker.query_id != query_id:
        raise TakenOverError(
            f"the newest marker is that of query {marker.query_id}, and this is query {query_id}"
        )


def is_delivered(batch: Batch, marker: Marker | None) -> bool:
    """Whether `marker` is this batch's; DisagreementError where it is not the one before either.

    TakenOverError if it is another query's.
    """
    if marker is not None:
        _check_owner(batch.query_id, marker)
    newest = NO_BATCH if marker is None else marker.batch_id
    if newest > batch.batch_id:
        raise DisagreementError(
            f"the checkpoint is about to run batch {batch.batch_id}, but the results of batch "
            f"{newest} are out already: it is an older copy. Put the newest copy back, or "
            f"{_START_AGAIN}"
        )
    if marker is not None and newest == batch.batch_id:
        if marker.fingerprint != batch.fingerprint:
            raise DisagreementError(
                f"batch {batch.batch_id} has been delivered from other input offsets than the "
                "checkpoint has now: it was changed, or copied and run twice. Put the copy back "
                f"that delivered it, or {_START_AGAIN}"
            )
        return True
    if batch.batch_id > batch.since and newest != batch.batch_id - 1:
        found = "holds none" if newest == NO_BATCH else f"ends with batch {newest}"
        raise DisagreementError(
            f"batch {batch.batch_id - 1} has been delivered, but its marker is missing (the commit "
            f"topic {found}): was the topic deleted or renamed? Put it back. To go on without it, "
            "run with `delivery: at_least_once` until a batch has ended, whose results may come "
            f"twice, and then with exactly_once again; or {_START_AGAIN}"
        )
    return False


def run(
    protocol: Generator[Step, Marker | None, Result], perform: Callable[[Step], Marker | None]
) -> Result:
    """Perform step after step; raises the NotDeliveredError that ended the attempt."""
    step = next(protocol)
    while True:
        try:
            try:
                reply = perform(step)
            except NotDeliveredError as failure:
                step = protocol.throw(failure)
            else:
                step = protocol.send(reply)
        except StopIteration as end:
            result: Result = end.value
            return result
