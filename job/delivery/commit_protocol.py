"""How the rows of one batch get into Kafka once: the commit protocol of one state partition.

Rows and a marker are written in one transaction. The marker says which batch of the partition has
been delivered, so whoever runs a batch again, be it seconds or days later, can tell. No failure
needs to be judged right for that: each attempt begins with the marker.

Pure: no Kafka, no clock. `delivered_once` says which step is next and is told what came of it;
transactions.py performs the steps, and the tests perform them on a modelled broker.
"""

from collections.abc import Callable, Generator
from dataclasses import dataclass
from enum import StrEnum, auto


@dataclass(frozen=True)
class Marker:
    """That a batch of a state partition has been delivered, and which input it was made from."""

    batch_id: int
    fingerprint: str
    """Of the batch's input offsets."""


@dataclass(frozen=True)
class Batch:
    """One batch of one state partition."""

    batch_id: int
    fingerprint: str
    since: int
    """The first batch of the checkpoint that is delivered by this protocol: none before it has
    left a marker that one could count on."""

    @property
    def marker(self) -> Marker:
        return Marker(self.batch_id, self.fingerprint)


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


def delivered_once(batch: Batch) -> Generator[Step, Marker | None, Result]:
    """Yields the next step; is sent a marker after LOOK and READ_MARKER, None after the others.

    A step that fails is told by throwing its NotDeliveredError. Returns only when the batch is
    known to be delivered.
    """
    # The first look fences nobody: whoever was left behind (a driver that was stopped and woke up
    # again) ends here, and does not take its successor's transaction with it.
    seen = yield Step.LOOK
    if seen is not None and seen.batch_id >= batch.batch_id and is_delivered(batch, seen):
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


def is_delivered(batch: Batch, marker: Marker | None) -> bool:
    """Whether `marker` is this batch's; DisagreementError where it is not the one before either."""
    newest = -1 if marker is None else marker.batch_id
    if newest > batch.batch_id:
        raise DisagreementError(
            f"the checkpoint is about to run batch {batch.batch_id}, but the results of batch "
            f"{newest} are out already: it is an older copy. Put the newest copy back, or name "
            "another folder in `checkpoint` to begin anew"
        )
    if marker is not None and newest == batch.batch_id:
        if marker.fingerprint != batch.fingerprint:
            raise DisagreementError(
                f"batch {batch.batch_id} has been delivered from other input offsets than the "
                "checkpoint has now: it was changed, or copied and run twice. Put the copy back "
                "that delivered it, or name another folder in `checkpoint` to begin anew"
            )
        return True
    if batch.batch_id > batch.since and newest != batch.batch_id - 1:
        found = "holds none" if marker is None else f"ends with batch {newest}"
        raise DisagreementError(
            f"batch {batch.batch_id - 1} has been delivered, but its marker is missing (the commit "
            f"topic {found}): was the topic deleted or renamed? Put it back. To go on without it, "
            "run with `delivery: at_least_once` until a batch has ended, whose results may come "
            "twice, and then with exactly_once again; or name another folder in `checkpoint` to "
            "begin anew"
        )
    return False


def run(batch: Batch, perform: Callable[[Step], Marker | None]) -> Result:
    """Perform step after step; raises the NotDeliveredError that ended the attempt."""
    protocol = delivered_once(batch)
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
