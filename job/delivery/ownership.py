"""Makes a query the only one that delivers under its name, by the markers in the commit topic.

Runs on the driver before the query starts. A start that finds the markers of another query is
refused, unless the user has agreed that the new query replaces the old one: the new query would
deliver all results again, or two jobs would write at the same time.
"""

import threading
from collections.abc import Collection, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial

from confluent_kafka import KafkaException, Producer

from job.checkpoint.checkpoint import Checkpoint
from job.delivery import producers
from job.delivery.commit_protocol import (
    NO_BATCH,
    DeliveredAfterCutError,
    Marker,
    NotDeliveredError,
    Step,
    TakenOverError,
    run,
    take_over,
)
from job.delivery.delivered import Delivered
from job.delivery.markers import MarkerReader, encoded, marker_key
from job.delivery.slots import Slot, Target, slot_of
from job.errors import CheckpointError, DeliveryError
from job.kafka.clients import produce
from job.kafka.reset_remedy import reset_remedy
from job.plan.plan import JoinPlan

# Producers that connect at the same time.
_THREADS = 8


def ensure_ownership(
    target: Target,
    checkpoint: Checkpoint,
    dead_letters: Slot,
    *,
    since: int,
    new_query: bool,
    last_batches: Mapping[str, int] | None = None,
) -> None:
    """Make the query of `target` the only one that delivers under its name.

    `dead_letters`: the slot after those of the state partitions. `since`: first batch that is
    delivered exactly once. `new_query`: the user agrees to replace another query. `last_batches`:
    as for `take_over`. Raises CheckpointError if another query owns the name, or a replaced query
    has delivered a later batch, and DeliveryError if Kafka does not answer.
    """
    with _errors_for_users(target):
        topic = _CommitTopic(target, dead_letters)
        if checkpoint.owns_name and topic.owner(slot_of(0)) == target.query_id:
            return
        with ThreadPoolExecutor(_THREADS, "ownership") as threads:
            slots = topic.slots
            found = zip(slots, threads.map(topic.owner, slots), strict=True)
            owners, outdated = _owners(found, dead_letters)
            replaces = _replace_queries(
                target, checkpoint, owners, outdated, since=since, new_query=new_query
            )
            take = partial(_take, target, topic, replaces, last_batches)
            take(slots[0])  # of two queries that start at the same time, one fails here
            list(threads.map(take, slots[1:]))
        checkpoint.owns_name = True


def check_owners(target: Target, checkpoint: Checkpoint, dead_letters: Slot) -> None:
    """Raises CheckpointError if another query has delivered last under the name, and the query of
    `target` may not replace it."""
    if checkpoint.may_replace_any_query:
        return
    with _errors_for_users(target):
        topic = _CommitTopic(target, dead_letters)
        owners, _ = _owners(((slot, topic.owner(slot)) for slot in topic.slots), dead_letters)
        if foreign := owners - checkpoint.replaced_queries - {target.query_id}:
            raise _refusal(target, foreign, is_new=False)


def newest_delivered(plan: JoinPlan, target: Target, *, to_the_end: bool) -> Delivered:
    """What the query of `target` has delivered. `to_the_end`: False: without the records that open
    transactions hide."""
    with _errors_for_users(target):
        reader = target.reader()
        partitions = range(min(plan.state_partitions, reader.partitions))
        found = [
            reader.delivered(
                *(number, marker_key(target.name, str(number)), target.query_id),
                to_the_end=to_the_end,
            )
            for number in partitions
        ]
        return Delivered(
            max((each.batch_id for each in found), default=NO_BATCH),
            max((each.interval_id for each in found), default=NO_BATCH),
            min((each.fence for each in found), default=0),
            max((each.fenced_id for each in found), default=NO_BATCH),
        )


@contextmanager
def _errors_for_users(target: Target) -> Iterator[None]:
    try:
        yield
    except DeliveredAfterCutError as error:
        raise CheckpointError(
            f"{error}, so the new query would deliver some results again. End the job of the old "
            "query; undo the change, if it is complete; then repeat it with another `checkpoint`"
        ) from error
    except TakenOverError as error:
        raise CheckpointError(
            f"another query with the name {target.name} runs at the same time: {error}. End its "
            "job, then try again"
        ) from error
    except NotDeliveredError as error:
        retryable = getattr(error, "retryable", True)
        raise DeliveryError(
            f"the commit topic {target.commit_topic} could not be written: {error}"
            f"{producers.again(retryable)}",
            retryable=retryable,
        ) from error
    except KafkaException as error:
        what = f"the commit topic {target.commit_topic} could not be read"
        raise producers.delivery_error(what, error) from error


class _CommitTopic:
    def __init__(self, target: Target, dead_letters: Slot) -> None:
        self._target = target
        self._dead_letters = dead_letters
        self._readers = threading.local()

    @property
    def reader(self) -> MarkerReader:
        """The reader of this thread."""
        if not hasattr(self._readers, "reader"):
            self._readers.reader = self._target.reader()
        reader: MarkerReader = self._readers.reader
        return reader

    @property
    def slots(self) -> list[Slot]:
        """Slots of every query that has used the topic, with any number of state partitions."""
        partitions = self.reader.partitions
        slots = [slot_of(partition) for partition in range(partitions)]
        return [*slots, *([self._dead_letters] if self._is_in(partitions) else [])]

    def _is_in(self, partitions: int) -> bool:
        return self._dead_letters.commit_partition < partitions

    def owner(self, slot: Slot) -> str | None:
        """The query of the newest marker. None: there is no marker."""
        key = marker_key(self._target.name, slot.name)
        marker = self.reader.newest(slot.commit_partition, key, to_the_end=False)
        return None if marker is None else marker.query_id


def _owners(
    found: Iterable[tuple[Slot, str | None]], dead_letters: Slot
) -> tuple[set[str], set[str]]:
    """The owners of the state partitions, and outdated owners of the dead letters.

    `found`: the slots with their owners.

    The partition of the dead letters depends on the number of state partitions. So its newest
    marker can be that of a query whose state partitions other queries have taken over since.
    """
    rows: set[str] = set()
    letters: set[str] = set()
    for slot, owner in found:
        if owner is not None:
            (letters if slot == dead_letters else rows).add(owner)
    return (rows, letters - rows) if rows else (letters, set())


def _replace_queries(
    target: Target,
    checkpoint: Checkpoint,
    owners: set[str],
    outdated: set[str],
    *,
    since: int,
    new_query: bool,
) -> Collection[str]:
    """Record and return the queries that this one may replace, also the `outdated` ones.

    Raises CheckpointError if it may not replace the owners.
    """
    replaced = checkpoint.replaced_queries | {target.query_id}
    foreign, outdated = owners - replaced, outdated - replaced
    if foreign:
        last = checkpoint.last_batch_id
        is_new = since == (0 if last is None else last + 1)
        if not is_new or not (new_query or checkpoint.may_replace_any_query):
            raise _refusal(target, foreign, is_new=is_new)
    if foreign or outdated or checkpoint.may_replace_any_query:
        checkpoint.replace_queries(foreign | outdated)
    return checkpoint.replaced_queries


def _refusal(target: Target, foreign: Collection[str], *, is_new: bool) -> CheckpointError:
    message = (
        f"results of another query were delivered under the name {target.name}: the commit topic "
        f"{target.commit_topic} contains markers of query {', '.join(sorted(foreign))}, and this "
        f"checkpoint belongs to query {target.query_id}. "
    )
    if is_new:
        return CheckpointError(
            f"{message}A new query would deliver its results again. Restore the old checkpoint; or "
            "start with `streamjoin run SPEC --new-query` (STREAMJOIN_NEW_QUERY=true) to replace "
            "the old query, whose job then stops; or give the new query another `name`"
        )
    return CheckpointError(
        f"{message}That query has replaced this one. End the other job or this one; "
        f"to start this one with empty state: {reset_remedy()}"
    )


def _take(
    target: Target,
    topic: _CommitTopic,
    replaces: Collection[str],
    last_batches: Mapping[str, int] | None,
    slot: Slot,
) -> None:
    claim = Marker(NO_BATCH, "", target.query_id)
    writer = _Writer(target, topic.reader, slot, claim, reads_parts_of=last_batches or ())
    run(take_over(claim, replaces, last_batches), writer.perform)


class _Writer:
    """Performs the steps of `take_over` in one slot."""

    def __init__(
        self,
        target: Target,
        reader: MarkerReader,
        slot: Slot,
        claim: Marker,
        *,
        reads_parts_of: Collection[str],
    ) -> None:
        """`reads_parts_of`: queries whose markers READ_MARKER returns with the newest interval of
        which they have delivered a part. The marker of an interval is written at its end."""
        self._topic = target.commit_topic
        self._reader = reader
        self._partition = slot.commit_partition
        self._settings = target.producer_settings(slot)
        self._key = marker_key(target.name, slot.name)
        self._claim = claim
        self._reads_parts_of = reads_parts_of
        self._producer: Producer | None = None

    def perform(self, step: Step) -> Marker | None:
        try:
            return self._perform(step)
        except KafkaException as error:
            raise producers.failure_of(step, error) from error

    def _perform(self, step: Step) -> Marker | None:
        if step in {Step.PEEK_MARKER, Step.READ_MARKER}:
            to_the_end = step is Step.READ_MARKER
            found = self._reader.newest(self._partition, self._key, to_the_end=to_the_end)
            if to_the_end and found is not None and found.query_id in self._reads_parts_of:
                arguments = self._partition, self._key, found.query_id
                delivered = self._reader.delivered(*arguments, to_the_end=True)
                found = replace(found, batch_id=delivered.batch_id)
            return found
        if step is Step.INIT:
            self._producer = producers.init_producer(self._settings, self._topic)
            return None
        assert self._producer is not None, "the protocol begins with INIT"
        match step:
            case Step.BEGIN:
                self._producer.begin_transaction()
            case Step.WRITE_MARKER:
                marker = encoded(self._claim)
                produce(self._producer, self._topic, marker, self._key, self._partition)
            case Step.COMMIT:
                self._producer.commit_transaction(producers.COMMIT_SECONDS)
            case Step.ABORT:
                with suppress(KafkaException):  # the next INIT aborts it
                    self._producer.abort_transaction(producers.INIT_SECONDS)
        return None
