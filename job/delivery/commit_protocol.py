"""The claim of a transaction slot: one query at a time delivers under its name.

The newest marker of each slot in the commit topic contains the id of the query that wrote it, and a
query writes only after a marker with its id. A new query writes its first marker with `take_over`.
The writer of the rows (writer/DeliveredParts.java) follows tests/unit/delivery/
interval_protocol.py.

Pure: no Kafka, no clock. `take_over` yields the next step and receives the result of the step.
ownership.py performs the steps; the tests perform them on a modelled broker.
"""

from collections.abc import Callable, Collection, Generator, Mapping
from dataclasses import dataclass
from enum import StrEnum, auto

from job.errors import PicklableError


@dataclass(frozen=True)
class Marker:
    """Record of the commit topic: the batch that was delivered, and its input."""

    batch_id: int
    fingerprint: str
    """Fingerprint of the input offsets of the batch."""
    query_id: str
    """Query that delivered the batch."""


NO_BATCH = -1
"""Batch id of the first marker of a query, which owns the slot and has delivered nothing."""


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
    WRITE_MARKER = auto()
    COMMIT = auto()
    ABORT = auto()
    """Best effort: the next INIT aborts a transaction that is left open."""


class Result(StrEnum):
    COMMITTED = auto()
    SKIPPED = auto()
    """An earlier attempt has committed the transaction."""


class NotDeliveredError(PicklableError):
    """The slot is possibly not claimed. Base of the errors of the steps and the protocol."""


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


class TakenOverError(NotDeliveredError):
    """The newest marker is that of another query."""


class DeliveredAfterCutError(TakenOverError):
    """The old query has delivered results after the cut of a change."""


def take_over(
    claim: Marker, replaces: Collection[str], last_batches: Mapping[str, int] | None = None
) -> Generator[Step, Marker | None, Result]:
    """Make the query of `claim` the owner of a slot, instead of the queries in `replaces`.

    `last_batches`: last batch that a replaced query may have delivered, by its id. Others may have
    delivered any batch. Yields the next step; receives a marker after PEEK_MARKER and READ_MARKER,
    otherwise None. The caller throws the NotDeliveredError of a step that fails. Raises it, or
    TakenOverError if another query owns the slot, or DeliveredAfterCutError if a replaced query has
    delivered a later batch. Afterwards every read of the slot finds the marker of the query, which
    stops the replaced query.
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
    try:
        yield from (Step.BEGIN, Step.WRITE_MARKER, Step.COMMIT)
    except AbortedError:
        yield Step.ABORT
        raise
    # Kafka confirms a commit before readers see it. This read ends when they see it.
    is_owned((yield Step.READ_MARKER))
    return Result.COMMITTED


def check_owner(query_id: str, marker: Marker) -> None:
    if marker.query_id != query_id:
        raise TakenOverError(
            f"query {marker.query_id} has written the newest marker, and this is query {query_id}"
        )


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
