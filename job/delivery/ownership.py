"""Makes a query the only one that delivers under its name, by the markers in the commit topic.

Runs on the driver before the query starts. A start that finds the markers of another query is
refused, unless the user has agreed that the new query replaces the old one: the new query would
deliver all results again, or two jobs would write at the same time.
"""

import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial

from confluent_kafka import KafkaException, Producer

from job.checkpoint.checkpoint import Checkpoint
from job.delivery import producers
from job.delivery.commit_protocol import (
    NO_BATCH,
    RETIRED,
    DeliveredAfterCutError,
    Marker,
    NotDeliveredError,
    Step,
    TakenOverError,
    UnavailableError,
    retire,
    run,
    take_over,
)
from job.delivery.interval_protocol import Delivered
from job.delivery.markers import MarkerReader, OldKey, encoded, marker_key
from job.delivery.transactions import Target, TransactionSlot, new_reader, slot_of
from job.errors import CheckpointError, DeliveryError
from job.kafka.clients import produce
from job.plan.plan import JoinPlan

# Producers that connect at the same time.
_THREADS = 8


def ensure_ownership(
    target: Target,
    checkpoint: Checkpoint,
    dead_letters: TransactionSlot,
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
            contents = list(threads.map(topic.content, topic.slots))
            owners, outdated = _owners(contents, dead_letters)
            replaces = _replace_queries(
                target, checkpoint, owners, outdated, since=since, new_query=new_query
            )
            old_queries = {key.query_id for content in contents for key in content.old_keys}
            if checkpoint.has_begun and not owners - {target.query_id}:
                old_queries.add(target.query_id)  # it may run its first batch
            take = partial(_take, target, topic, replaces, old_queries, last_batches)
            take(contents[0])  # of two queries that start at the same time, one fails here
            list(threads.map(take, contents[1:]))
        checkpoint.owns_name = True


def newest_delivered(plan: JoinPlan, target: Target, *, to_the_end: bool) -> Delivered:
    """What the query of `target` has delivered. `to_the_end`: False: without the records that open
    transactions hide."""
    with _errors_for_users(target):
        reader = new_reader(target, has_one_record_a_transaction=False)
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
            max((each.fenced_interval_id for each in found), default=NO_BATCH),
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


@dataclass(frozen=True)
class _SlotContent:
    """Markers of one slot in the commit topic."""

    slot: TransactionSlot
    owner: str | None
    """Query of the newest marker. None: there is no marker."""
    old_keys: tuple[OldKey, ...] = ()
    """Keys of queries of older versions, whose jobs may still run."""

    def keys_of(self, query_ids: Collection[str]) -> set[OldKey]:
        """Old keys, also those that have no marker yet."""
        return {*self.old_keys, *(OldKey(query_id, self.slot.name) for query_id in query_ids)}


class _CommitTopic:
    def __init__(self, target: Target, dead_letters: TransactionSlot) -> None:
        self._target = target
        self._dead_letters = dead_letters
        self._readers = threading.local()
        # Old keys do not contain the name of the join. In a topic that several joins share, they
        # may belong to another join.
        self._is_shared = target.commit_topic != f"{target.name}.commits"

    @property
    def reader(self) -> MarkerReader:
        """The reader of this thread."""
        if not hasattr(self._readers, "reader"):
            # Markers of an older version are retired and copied in one transaction.
            self._readers.reader = new_reader(self._target, has_one_record_a_transaction=False)
        reader: MarkerReader = self._readers.reader
        return reader

    @property
    def slots(self) -> list[TransactionSlot]:
        """Slots of every query that has used the topic, with any number of state partitions."""
        partitions = self.reader.partitions
        slots = [slot_of(partition) for partition in range(partitions)]
        return [*slots, *([self._dead_letters] if self._is_in(partitions) else [])]

    def _is_in(self, partitions: int) -> bool:
        return self._dead_letters.commit_partition < partitions

    def owner(self, slot: TransactionSlot) -> str | None:
        key = marker_key(self._target.name, slot.name)
        marker = self.reader.newest(slot.commit_partition, key, to_the_end=False)
        return None if marker is None else marker.query_id

    def content(self, slot: TransactionSlot) -> _SlotContent:
        owner = self.owner(slot)
        if slot == self._dead_letters:
            return _SlotContent(slot, owner)
        old_keys = self.old_keys(slot, to_the_end=False)
        rows = [key for key in old_keys if key.slot == slot.name]
        if owner is None and rows and slot.commit_partition < self._dead_letters.commit_partition:
            owner = rows[-1].query_id
        return _SlotContent(slot, owner, tuple(old_keys))

    def old_keys(self, slot: TransactionSlot, *, to_the_end: bool) -> list[OldKey]:
        return [
            key
            for key in self.reader.old_keys(slot.commit_partition, to_the_end=to_the_end)
            if not self._is_shared or key.query_id == self._target.query_id
        ]


def _owners(
    contents: Iterable[_SlotContent], dead_letters: TransactionSlot
) -> tuple[set[str], set[str]]:
    """The owners of the state partitions, and outdated owners of the dead letters.

    The partition of the dead letters depends on the number of state partitions. So its newest
    marker can be that of a query whose state partitions other queries have taken over since.
    """
    rows: set[str] = set()
    letters: set[str] = set()
    for content in contents:
        if content.owner is not None:
            (letters if content.slot == dead_letters else rows).add(content.owner)
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
        "to start this one with empty state, `stop`, then POST /v1/query/reset"
    )


def _take(
    target: Target,
    topic: _CommitTopic,
    replaces: Collection[str],
    old_queries: Collection[str],
    last_batches: Mapping[str, int] | None,
    content: _SlotContent,
) -> None:
    for old in content.keys_of(old_queries):
        old_id = f"streamjoin-{target.name}-{old.query_id}-{old.slot}"
        writer = _Writer(target, topic.reader, content.slot, old.encoded, old_id)
        run(retire(), partial(writer.perform, partial(_retirement, target, old)))
    key = marker_key(target.name, content.slot.name)
    claim = Marker(NO_BATCH, "", target.query_id)
    writer = _Writer(target, topic.reader, content.slot, key, reads_parts_of=last_batches or ())
    run(take_over(claim, replaces, last_batches), partial(writer.perform, lambda _: [(key, claim)]))
    # Transactions that were open before are decided now.
    if content.old_keys and topic.old_keys(content.slot, to_the_end=True):
        raise UnavailableError("a job of an older version delivered during the start")


def _retirement(
    target: Target, old: OldKey, marker: Marker | None
) -> Iterator[tuple[bytes, Marker]]:
    yield old.encoded, Marker(RETIRED, "", old.query_id)
    if old.query_id == target.query_id and marker is not None:
        yield marker_key(target.name, old.slot), marker


class _Writer:
    """Performs the steps of the protocol on one key of one partition."""

    def __init__(
        self,
        target: Target,
        reader: MarkerReader,
        slot: TransactionSlot,
        key: bytes,
        old_id: str | None = None,
        reads_parts_of: Collection[str] = (),
    ) -> None:
        """`old_id`: transactional id of an older version. None: that of the slot. `reads_parts_of`:
        queries whose markers READ_MARKER returns with the newest interval of which they have
        delivered a part. The marker of an interval is written at its end."""
        self._topic = target.commit_topic
        self._reader = reader
        self._partition = slot.commit_partition
        self._settings = target.producer_settings(slot)
        if old_id is not None:
            self._settings["transactional.id"] = old_id
        self._key = key
        self._reads_parts_of = reads_parts_of
        self._producer: Producer | None = None
        self._found: Marker | None = None

    def perform(
        self, markers: Callable[[Marker | None], Iterable[tuple[bytes, Marker]]], step: Step
    ) -> Marker | None:
        """`markers`: returns what WRITE_MARKER writes, from the marker that READ_MARKER found."""
        try:
            return self._perform(markers, step)
        except KafkaException as error:
            raise producers.failure_of(step, error) from error

    def _perform(
        self, markers: Callable[[Marker | None], Iterable[tuple[bytes, Marker]]], step: Step
    ) -> Marker | None:
        if step in {Step.PEEK_MARKER, Step.READ_MARKER}:
            to_the_end = step is Step.READ_MARKER
            found = self._reader.newest(self._partition, self._key, to_the_end=to_the_end)
            if to_the_end and found is not None and found.query_id in self._reads_parts_of:
                arguments = self._partition, self._key, found.query_id
                delivered = self._reader.delivered(*arguments, to_the_end=True)
                found = replace(found, batch_id=delivered.batch_id)
            self._found = found
            return found
        if step is Step.INIT:
            self._producer = producers.init_producer(self._settings, self._topic)
            return None
        assert self._producer is not None, "the protocol begins with INIT"
        match step:
            case Step.BEGIN:
                self._producer.begin_transaction()
            case Step.WRITE_MARKER:
                for key, marker in markers(self._found):
                    produce(self._producer, self._topic, encoded(marker), key, self._partition)
            case Step.COMMIT:
                self._producer.commit_transaction(producers.COMMIT_SECONDS)
            case Step.ABORT:
                with suppress(KafkaException):  # the next INIT aborts it
                    self._producer.abort_transaction(producers.INIT_SECONDS)
        return None
