"""Which query may deliver under a name: one at a time, known by the markers in the commit topic.

Runs on the driver before the query starts. A start that finds the markers of another query is
refused, unless the user has agreed that the new query replaces the old one: it would deliver all
results again, or two jobs would write side by side.
"""

import threading
from collections.abc import Callable, Collection, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from confluent_kafka import KafkaException, Producer

from job.checkpoint.checkpoint import Checkpoint
from job.delivery import producers
from job.delivery.commit_protocol import (
    NO_BATCH,
    RETIRED,
    Marker,
    NotDeliveredError,
    Step,
    TakenOverError,
    UnavailableError,
    retired,
    run,
    taken_over,
)
from job.delivery.markers import MarkerReader, OldKey, encoded, marker_key
from job.delivery.transactions import Target, TransactionSlot, lane_of, new_reader
from job.errors import CheckpointError, DeliveryError

# Producers that connect at the same time.
_THREADS = 8


def ensure_ownership(
    target: Target,
    checkpoint: Checkpoint,
    dead_letters: TransactionSlot,
    *,
    since: int,
    new_query: bool,
) -> None:
    """Make the query of `target` the only one that delivers under its name.

    `dead_letters`: the lane behind those of the state partitions. `since`: first batch that is
    delivered exactly once. `new_query`: the user agrees to replace another query. Raises
    CheckpointError if another query owns the name, and DeliveryError if Kafka does not answer.
    """
    try:
        topic = _CommitTopic(target, dead_letters)
        if checkpoint.owns_name and topic.owner(lane_of(0)) == target.query_id:
            return
        with ThreadPoolExecutor(_THREADS, "ownership") as threads:
            found = list(threads.map(topic.found, topic.lanes))
            owners = {one.owner for one in found if one.owner is not None}
            replaces = _replaced(target, checkpoint, owners, since=since, new_query=new_query)
            old_queries = {key.query_id for one in found for key in one.old_keys}
            if checkpoint.has_begun and not owners - {target.query_id}:
                old_queries.add(target.query_id)  # may be at its first batch
            take = partial(_take, target, topic, replaces, old_queries)
            take(found[0])  # of two queries that start at once, one does not get past this
            list(threads.map(take, found[1:]))
        checkpoint.owns_name = True
    except TakenOverError as error:
        raise CheckpointError(
            f"another query of the name {target.name} started at the same time: {error}"
        ) from error
    except NotDeliveredError as error:
        raise DeliveryError(
            f"the commit topic {target.commit_topic} could not be written at the start: {error}",
            retryable=getattr(error, "retryable", True),
        ) from error
    except KafkaException as error:
        raise DeliveryError(
            f"the commit topic {target.commit_topic} could not be read: {error.args[0].str()}",
            retryable=not producers.is_lasting(error.args[0]),
        ) from error


@dataclass(frozen=True)
class _Found:
    """What the commit topic holds of one lane."""

    lane: TransactionSlot
    owner: str | None
    """Query of the newest marker. None: there is none."""
    old_keys: tuple[OldKey, ...] = ()
    """Of queries of older versions, whose jobs may still run."""

    def keys_of(self, query_ids: Collection[str]) -> set[OldKey]:
        """Also those under which nothing was written yet."""
        return {*self.old_keys, *(OldKey(query_id, self.lane.name) for query_id in query_ids)}


class _CommitTopic:
    def __init__(self, target: Target, dead_letters: TransactionSlot) -> None:
        self._target = target
        self._dead_letters = dead_letters
        self._readers = threading.local()
        # In a topic that other joins use, too, old keys do not say to which join they belong.
        self._is_shared = target.commit_topic != f"{target.name}.commits"

    @property
    def reader(self) -> MarkerReader:
        """This thread's."""
        if not hasattr(self._readers, "reader"):
            # The markers of an older version are retired and carried over in one transaction.
            self._readers.reader = new_reader(self._target, has_one_record_a_transaction=False)
        reader: MarkerReader = self._readers.reader
        return reader

    @property
    def lanes(self) -> list[TransactionSlot]:
        """Those of any query that has used the topic, however many state partitions it had."""
        partitions = self.reader.partitions
        lanes = [lane_of(partition) for partition in range(partitions)]
        return [*lanes, *([self._dead_letters] if self._is_in(partitions) else [])]

    def _is_in(self, partitions: int) -> bool:
        return self._dead_letters.commit_partition < partitions

    def owner(self, lane: TransactionSlot) -> str | None:
        key = marker_key(self._target.name, lane.name)
        marker = self.reader.newest(lane.commit_partition, key, to_the_end=False)
        return None if marker is None else marker.query_id

    def found(self, lane: TransactionSlot) -> _Found:
        owner = self.owner(lane)
        if lane == self._dead_letters:
            return _Found(lane, owner)
        old_keys = self.old_keys(lane, to_the_end=False)
        rows = [key for key in old_keys if key.lane == lane.name]
        if owner is None and rows and lane.commit_partition < self._dead_letters.commit_partition:
            owner = rows[-1].query_id
        return _Found(lane, owner, tuple(old_keys))

    def old_keys(self, lane: TransactionSlot, *, to_the_end: bool) -> list[OldKey]:
        return [
            key
            for key in self.reader.old_keys(lane.commit_partition, to_the_end=to_the_end)
            if not self._is_shared or key.query_id == self._target.query_id
        ]


def _replaced(
    target: Target, checkpoint: Checkpoint, owners: set[str], *, since: int, new_query: bool
) -> Collection[str]:
    """The queries that this one may replace; CheckpointError if it may not replace the owners."""
    foreign = owners - {target.query_id} - checkpoint.replaced_queries
    if foreign:
        last = checkpoint.last_batch_id
        is_new = since == (0 if last is None else last + 1)
        if not is_new or not (new_query or checkpoint.may_replace_any_query):
            raise _refusal(target, foreign, is_new=is_new)
    if foreign or checkpoint.may_replace_any_query:
        checkpoint.replace_queries(foreign)
    return checkpoint.replaced_queries


def _refusal(target: Target, foreign: Collection[str], *, is_new: bool) -> CheckpointError:
    found = (
        f"results of another query were delivered under the name {target.name}: the commit topic "
        f"{target.commit_topic} holds markers of query {', '.join(sorted(foreign))}, and this "
        f"checkpoint is that of query {target.query_id}. "
    )
    if is_new:
        return CheckpointError(
            f"{found}A new query would deliver its results again. Put the old checkpoint back; or "
            "start with `streamjoin run SPEC --new-query` (STREAMJOIN_NEW_QUERY=true) to replace "
            "the old query, whose job then stops; or give the new query another `name`"
        )
    return CheckpointError(
        f"{found}It has replaced this one, which cannot continue. End the other job or this one; "
        "to start this one again with empty state, `stop`, then POST /v1/query/reset"
    )


def _take(
    target: Target,
    topic: _CommitTopic,
    replaces: Collection[str],
    old_queries: Collection[str],
    found: _Found,
) -> None:
    for old in found.keys_of(old_queries):
        old_id = f"streamjoin-{target.name}-{old.query_id}-{old.lane}"
        writer = _Writer(target, topic.reader, found.lane, old.encoded, old_id)
        run(retired(), partial(writer.perform, partial(_retirement, target, old)))
    key = marker_key(target.name, found.lane.name)
    claim = Marker(NO_BATCH, "", target.query_id)
    writer = _Writer(target, topic.reader, found.lane, key)
    run(taken_over(claim, replaces), partial(writer.perform, lambda _: [(key, claim)]))
    # What an open transaction hid is decided now.
    if found.old_keys and topic.old_keys(found.lane, to_the_end=True):
        raise UnavailableError("a job of an older version delivered during the start")


def _retirement(
    target: Target, old: OldKey, found: Marker | None
) -> Iterator[tuple[bytes, Marker]]:
    yield old.encoded, Marker(RETIRED, "", old.query_id)
    if old.query_id == target.query_id and found is not None:
        yield marker_key(target.name, old.lane), found


class _Writer:
    """Performs the steps of the protocol on one key of one partition."""

    def __init__(
        self,
        target: Target,
        reader: MarkerReader,
        lane: TransactionSlot,
        key: bytes,
        old_id: str | None = None,
    ) -> None:
        """`old_id`: transactional id of an older version. None: that of the lane."""
        self._topic = target.commit_topic
        self._reader = reader
        self._partition = lane.commit_partition
        self._settings = target.producer_settings(lane)
        if old_id is not None:
            self._settings["transactional.id"] = old_id
        self._key = key
        self._producer: Producer | None = None
        self._found: Marker | None = None

    def perform(
        self, written: Callable[[Marker | None], Iterable[tuple[bytes, Marker]]], step: Step
    ) -> Marker | None:
        """`written`: what WRITE_MARKER writes, given what READ_MARKER has found."""
        try:
            return self._perform(written, step)
        except KafkaException as error:
            raise producers.failure_of(step, error) from error

    def _perform(
        self, written: Callable[[Marker | None], Iterable[tuple[bytes, Marker]]], step: Step
    ) -> Marker | None:
        if step in {Step.LOOK, Step.READ_MARKER}:
            to_the_end = step is Step.READ_MARKER
            self._found = self._reader.newest(self._partition, self._key, to_the_end=to_the_end)
            return self._found
        if step is Step.INIT:
            self._producer = producers.initialised(self._settings, self._topic)
            return None
        assert self._producer is not None, "the protocol initialises before it writes"
        match step:
            case Step.BEGIN:
                self._producer.begin_transaction()
            case Step.WRITE_MARKER:
                for key, marker in written(self._found):
                    self._producer.produce(self._topic, encoded(marker), key, self._partition)
            case Step.COMMIT:
                self._producer.commit_transaction(producers.COMMIT_SECONDS)
            case Step.ABORT:
                with suppress(KafkaException):  # the next INIT aborts it
                    self._producer.abort_transaction(producers.INIT_SECONDS)
        return None
