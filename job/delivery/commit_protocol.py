"""The commit protocol of one state partition: writes the rows of a batch to Kafka exactly once.

Rows and a marker are written in one transaction. The marker contains the last batch of the
partition that was delivered. Each attempt reads it first, so a batch that runs again, seconds or
days later, is not written again. Correctness never depends on how a failure was classified.

One query at a time owns a name: the newest marker of each transaction slot contains the id of the
query that wrote it, and a query continues only after a marker that it wrote. A new query writes its
first marker with `take_over`.

Pure: no Kafka, no clock. `deliver_once` yields the next step and receives the result of the step.
transactions.py and ownership.py perform the steps; the tests perform them on a modelled broker.
"""

from collections.abc import Callable, Collection, Generator, Mapping
from dataclasses import dataclass
from enum import StrEnum, auto

from job.errors import PicklableError

START_AGAIN = (
    "set another folder in `checkpoint` and start with --new-query (rows now waiting in state are "
    "then not joined, and results may be delivered again)"
)
USE_OLDER_COPY = (
    "restore the newest copy; or run `streamjoin checkpoint backup SPEC FOLDER`, then `streamjoin "
    "checkpoint restore SPEC FOLDER --results-again`, to deliver the later results again"
)


@dataclass(frozen=True)
class Marker:
    """Record of the commit topic: the batch that was delivered, and its input."""

    batch_id: int
    fingerprint: str
    """Fingerprint of the input offsets of the batch."""
    query_id: str
    """Query that delivered the batch."""

    @property
    def is_retired(self) -> bool:
        return self.batch_id >= RETIRED


NO_BATCH = -1
"""Batch id of the first marker of a query, which owns the slot and has delivered nothing."""
RETIRED = 2**62
"""Batch id that stops jobs of older versions, which ignore the markers of other queries: such a job
reads that a later batch was delivered, and fails."""


@dataclass(frozen=True)
class Batch:
    """One batch of one state partition."""

    batch_id: int
    fingerprint: str
    since: int
    """First batch of the checkpoint that this protocol delivers. Earlier batches may have no
    marker."""
    query_id: str

    @property
    def marker(self) -> Marker:
        return Marker(self.batch_id, self.fingerprint, self.query_id)


class Step(StrEnum):
    PEEK_MARKER = auto()
    """Return the newest committed marker of the slot. May miss one that is being committed."""
    READ_MARKER = auto()
    """Return the newest committed marker of the slot, or None. Reads everything that was in the
    commit topic when the step began; fails if an open transaction of any producer hides the end."""
    INIT = auto()
    """Create a producer and fence all others of the same transactional id. Afterwards each of their
    transactions is committed or aborted, and they cannot begin another one."""
    BEGIN = auto()
    WRITE_ROWS = auto()
    WRITE_MARKER = auto()
    COMMIT = auto()
    ABORT = auto()
    """Best effort: the next INIT aborts a transaction that is left open."""
    DROP_ROWS = auto()
    """Compute the rows without writing them: Spark commits the state of a batch only after its last
    row was computed."""


class Result(StrEnum):
    COMMITTED = auto()
    SKIPPED = auto()
    """An earlier attempt delivered the batch."""
    SETTLED = auto()
    """The response to the commit was lost; the marker shows that the commit succeeded."""


class NotDeliveredError(PicklableError):
    """The batch is possibly not delivered. Base of the errors of the steps and the protocol."""


class UnavailableError(NotDeliveredError):
    """No transaction was begun: the broker did not answer in time."""

    def __init__(self, message: str, *, retryable: bool = True) -> None:
        self.retryable = retryable
        super().__init__(message)


class AbortedError(NotDeliveredError):
    """The transaction cannot be committed."""

    def __init__(self, message: str, *, retryable: bool) -> None:
        self.retryable = retryable
        super().__init__(message)


class UnknownOutcomeError(NotDeliveredError):
    """The response to the commit was lost."""


class ProducerFencedError(NotDeliveredError):
    """Another producer has taken over the transactional id."""


class DisagreementError(NotDeliveredError):
    """Checkpoint and marker contradict each other."""


class TakenOverError(NotDeliveredError):
    """The newest marker is that of another query."""


class DeliveredAfterCutError(TakenOverError):
    """The old query has delivered results after the cut of a change."""


def deliver_once(batch: Batch) -> Generator[Step, Marker | None, Result]:
    """Yields the next step; receives a marker after PEEK_MARKER and READ_MARKER, otherwise None.

    The caller throws the NotDeliveredError of a step that fails. Returns only when the batch is
    delivered.
    """
    # PEEK_MARKER fences no producer: a zombie driver ends here, without aborting the transaction
    # of its successor.
    seen = yield Step.PEEK_MARKER
    if seen is not None and is_not_before(batch, seen) and is_delivered(batch, seen):
        yield Step.DROP_ROWS
        return Result.SKIPPED
    # The outcome of a transaction of another producer is final only once that producer is fenced.
    # INIT precedes each transaction, so that a delayed commit or abort cannot affect a later one
    # (KIP-890, which librdkafka does not implement).
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
        # After INIT the transaction is committed or aborted. If it is aborted, this attempt cannot
        # write the batch again, because it has consumed the rows.
        yield Step.INIT
        if is_delivered(batch, (yield Step.READ_MARKER)):
            return Result.SETTLED
        raise
    return Result.COMMITTED


def take_over(
    claim: Marker, replaces: Collection[str], last_batches: Mapping[str, int] | None = None
) -> Generator[Step, Marker | None, Result]:
    """Make the query of `claim` the owner of a slot, instead of the queries in `replaces`.

    `last_batches`: last batch that a replaced query may have delivered, by its id. Others may have
    delivered any batch. Yields and raises as `deliver_once`; TakenOverError if another query owns
    the slot, DeliveredAfterCutError if a replaced query has delivered a later batch. Afterwards
    every PEEK_MARKER finds the marker of the query, so PEEK_MARKER alone stops the replaced query.
    """

    def is_owned(marker: Marker | None) -> bool:
        if marker is None:
            return False
        if marker.query_id in replaces:
            last_batch = (last_batches or {}).get(marker.query_id)
            if last_batch is not None and marker.batch_id > last_batch:
                raise DeliveredAfterCutError(
                    f"query {marker.query_id} has delivered batch {marker.batch_id} after the "
                    f"change has read batch {last_batch} as its last one"
                )
            return False
        check_owner(claim.query_id, marker)
        return True

    # No producer is fenced unless the query may own the slot.
    if is_owned((yield Step.PEEK_MARKER)):
        return Result.SKIPPED
    yield Step.INIT
    if is_owned((yield Step.READ_MARKER)):
        return Result.SKIPPED
    yield from _write_marker()
    # Kafka confirms a commit before readers see it. This read ends when they see it.
    is_owned((yield Step.READ_MARKER))
    return Result.COMMITTED


def retire() -> Generator[Step, Marker | None, Result]:
    """Stop the producers of an older version, which had a transactional id and a marker key per
    query. The steps use such an id and key.

    WRITE_MARKER writes RETIRED under the old key. If the old key is that of the present query, the
    same transaction copies its marker, if there is one, to the present key.
    """
    yield Step.INIT
    found = yield Step.READ_MARKER
    if found is not None and found.is_retired:
        return Result.SKIPPED
    yield from _write_marker()
    return Result.COMMITTED


def _write_marker() -> Generator[Step, Marker | None, None]:
    try:
        yield from (Step.BEGIN, Step.WRITE_MARKER, Step.COMMIT)
    except AbortedError:
        yield Step.ABORT
        raise


def is_not_before(batch: Batch, marker: Marker) -> bool:
    """Whether a marker of PEEK_MARKER shows the outcome, although newer markers may be missing."""
    return marker.batch_id >= batch.batch_id or marker.query_id != batch.query_id


def check_owner(query_id: str, marker: Marker) -> None:
    if marker.query_id != query_id:
        raise TakenOverError(
            f"query {marker.query_id} has written the newest marker, and this is query {query_id}"
        )


def is_delivered(batch: Batch, marker: Marker | None) -> bool:
    """Whether `marker`, the newest of the slot, belongs to the batch.

    Raises DisagreementError if it belongs neither to the batch nor to the previous batch, and
    TakenOverError if another query has written it.
    """
    if marker is not None:
        check_owner(batch.query_id, marker)
    newest = NO_BATCH if marker is None else marker.batch_id
    if newest > batch.batch_id:
        raise DisagreementError(
            f"the next batch of the checkpoint is {batch.batch_id}, but batch {newest} was already "
            f"delivered: the checkpoint is an older copy. To continue, {USE_OLDER_COPY}"
        )
    if marker is not None and newest == batch.batch_id:
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


def run(
    protocol: Generator[Step, Marker | None, Result], perform: Callable[[Step], Marker | None]
) -> Result:
    """Perform all steps. Raises the NotDeliveredError that ended the attempt."""
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
