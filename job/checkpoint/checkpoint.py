"""The folder of a checkpoint, on any file system that Hadoop supports.

    <checkpoint>/fingerprint.json     frozen settings, written before the first batch
    <checkpoint>/desired_state.json   whether the query should run, be paused or be stopped
    <checkpoint>/commands.json        the last commands: who sent them, when and why
    <checkpoint>/reset.json           a reset that is not complete (reset.py)
    <checkpoint>/starts.json          start positions after a reset
    <checkpoint>/event_times.json     newest event time read of each partition
    <checkpoint>/exactly_once.json    first batch delivered exactly once, and whether the query owns
                                      its name in the commit topic
    <checkpoint>/interval.json        last interval of real-time mode that began
    <checkpoint>/fence.json           number of the newest fence of the query's producers
    <checkpoint>/replaces.json        queries that this one may replace in the commit topic
    <checkpoint>/change.json          replay of the records of the query that this one replaces
    <checkpoint>/changed.json         checkpoint that continues this one
    <checkpoint>/requested_change.json   the last change that a client requested (change/files.py)
    <checkpoint>/filters.json         filters by which the query reads (filters.py)
    <checkpoint>/skipped.json         deleted records that the query has skipped (skipped.py)
    <checkpoint>/topics.json          Kafka's id of each topic that the query uses
    <checkpoint>/lease.json           the job that uses the checkpoint (lease.py)
    <checkpoint>/query/               Spark's own files: offsets, commits, state
    <checkpoint>/aside-<time>/        query/, fingerprint.json and topics.json before a reset

Spark requires its folder to be empty at the first start, so the other files are outside of it.
"""

import json
import uuid
from collections.abc import Collection, Mapping
from datetime import UTC, datetime

import structlog
from pyspark.sql import SparkSession

from job.checkpoint.documents import (
    NEVER_OWNED,
    DesiredState,
    ExactlyOnce,
    Fence,
    Fingerprint,
    Replaces,
    Starts,
    Topics,
    read_document,
    write_document,
)
from job.checkpoint.folder import Folder
from job.errors import CheckpointError
from job.event_time.interval import Interval
from job.event_time.partitions import Offsets, Partitions, RecordedEventTimes
from job.plan.fingerprint import changes, check_not_frozen, frozen_topics
from job.protocol.status import QueryState
from job.replay.cut import PlannedBatch
from job.replay.replay import Replay
from job.spec.sides import SIDES, Side
from job.spec.source_topics import SourceTopics
from job.spec.start_positions import StartPositions

_log = structlog.get_logger()

ASIDE = "aside-"
"""Prefix of the folders with files that a reset, a restore or a repair has moved."""

_NO_BATCH = -1
_DESIRABLE = {QueryState.RUNNING, QueryState.PAUSED, QueryState.STOPPED}


class Checkpoint:
    def __init__(self, spark: SparkSession, location: str) -> None:
        self.folder = Folder(spark, location)

    @property
    def query_location(self) -> str:
        """Spark's checkpointLocation."""
        return self.folder.path("query")

    @property
    def fingerprint(self) -> Mapping[str, str] | None:
        """The frozen settings. None: no batch was planned yet, so a start may change them."""
        document = read_document(self.folder, Fingerprint)
        if document is not None:
            begun = self.has_begun or self.recorded_interval is not None
            return document.settings if begun else None
        if self.folder.exists("query"):
            raise CheckpointError(
                f"{self.folder.root} contains a checkpoint but no {Fingerprint.file_name}, so its "
                "settings are unknown. Restore the file, or set another folder in `checkpoint` and "
                "start with --new-query"
            )
        return None

    def freeze(self, frozen: Mapping[str, str] | None, wanted: Mapping[str, str]) -> None:
        """Freeze the settings `wanted`. Raises FrozenSpecError if they differ from `frozen`."""
        check_not_frozen(self.folder.root, changes(frozen or wanted, wanted))
        document = Fingerprint(settings=dict(wanted))
        if read_document(self.folder, Fingerprint) != document:
            write_document(self.folder, document)

    @property
    def desired_state(self) -> QueryState:
        document = read_document(self.folder, DesiredState)
        return QueryState.RUNNING if document is None else document.state

    @desired_state.setter
    def desired_state(self, state: QueryState) -> None:
        assert state in _DESIRABLE
        if self.desired_state is not state:
            write_document(self.folder, DesiredState(state=state))

    @property
    def start_positions(self) -> StartPositions | None:
        """Offsets from which the first start reads. None: `start_from` of the spec."""
        document = read_document(self.folder, Starts)
        if document is None:
            return None
        return StartPositions(left=document.left, right=document.right)

    def start_at(self, positions: StartPositions) -> None:
        """Set the offsets from which the first start reads."""
        write_document(self.folder, Starts(left=positions.left, right=positions.right))

    @property
    def topic_ids(self) -> Mapping[str, str]:
        """Kafka's id by topic. Empty: no batch was planned yet."""
        document = read_document(self.folder, Topics)
        return {} if document is None or not self.has_begun else document.topics

    @topic_ids.setter
    def topic_ids(self, ids: Mapping[str, str]) -> None:
        write_document(self.folder, Topics(topics=dict(ids)))

    @property
    def has_begun(self) -> bool:
        """Whether a batch has been planned."""
        return bool(self.folder.names("query/offsets"))

    @property
    def last_batch_id(self) -> int | None:
        """The last batch that ended. None: no batch has ended."""
        return self._newest_batch("commits")

    @property
    def last_planned_batch_id(self) -> int | None:
        """The last batch that was planned; it may not have ended. None: no batch was planned."""
        return self._newest_batch("offsets")

    def _newest_batch(self, log: str) -> int | None:
        names = self.folder.names(f"query/{log}")
        return max((int(name) for name in names if name.isdecimal()), default=None)

    @property
    def is_committed(self) -> bool:
        """Whether Spark has committed every batch that it has planned."""
        return self.last_planned_batch_id == self.last_batch_id

    @property
    def offsets(self) -> Offsets | None:
        """Next offset to read per side and partition, after the last batch that ended."""
        last = self.last_batch_id
        return None if last is None else self._offsets_after(last)

    def _offsets_after(self, batch_id: int) -> Offsets | None:
        batch = self.batch(batch_id)
        return None if batch is None else batch.ends

    def batch(self, batch_id: int) -> PlannedBatch | None:
        """The input of a batch, from Spark's offset log. None: the log does not contain the
        batch."""
        text = self.folder.text(f"query/offsets/{batch_id}")
        if text is None:
            return None
        return PlannedBatch.from_log(batch_id, text, self.source_topics)

    @property
    def source_topics(self) -> Mapping[Side, SourceTopics]:
        """The frozen topics of each side, in their order."""
        document = read_document(self.folder, Fingerprint)
        frozen = {} if document is None else document.settings
        return {
            side: topics for side in SIDES if (topics := frozen_topics(frozen, side)) is not None
        }

    @property
    def event_times(self) -> RecordedEventTimes:
        """The document that `partitions` has written. Empty: it is missing or cannot be read."""
        try:
            recorded = read_document(self.folder, RecordedEventTimes)
        except CheckpointError as error:
            _log.warning("event_times_not_read", reason=str(error))
            recorded = None
        return recorded or RecordedEventTimes()

    @property
    def partitions(self) -> Partitions:
        """Offsets and event times read of the partitions, up to the last batch that ended.

        The event times are lower bounds. A partition has none if its entry in the file is missing,
        or if the file cannot be read: then the watermark waits for records of the partition.
        """
        return Partitions.restored(self.event_times, self.offsets)

    @partitions.setter
    def partitions(self, partitions: Partitions) -> None:
        write_document(self.folder, partitions.recorded())

    @property
    def recorded_interval(self) -> Interval | None:
        """The last interval of real-time mode that may have begun. None: there was none."""
        return read_document(self.folder, Interval)

    @property
    def interrupted_interval(self) -> Interval | None:
        """The interval of real-time mode that the query has to repeat. None: no interval.

        The repetition is over once Spark has committed it, because a batch that runs again uses the
        rule for late rows of its first run.
        """
        interval = self.recorded_interval
        if interval is None:
            return None
        last = self.last_batch_id
        if interval.batch_id > (_NO_BATCH if last is None else last):
            if interval.repeat_until is not None:
                return interval
            # If the interval has ended, the offset log contains its ends, and Spark repeats it
            # exactly.
            return interval.repeated_until(self._offsets_after(interval.batch_id))
        offsets = self.offsets
        is_over = interval.repeat_until is None or (
            offsets is not None and interval.is_repeated(offsets)
        )
        return None if is_over else interval

    def record_interval(self, interval: Interval) -> None:
        """Replace the record of the previous interval. Called before a row of `interval` is
        written, and once the previous interval needs no repetition."""
        write_document(self.folder, interval)

    @property
    def fence(self) -> int:
        """Number of the newest fence of the query's producers. 0: there was none."""
        return (read_document(self.folder, Fence) or Fence(number=0)).number

    def increment_fence(self) -> int:
        """Record and return the number of the next fence. Call it before the fence, so that no two
        fences have the same number."""
        write_document(self.folder, Fence(number=(number := self.fence + 1)))
        return number

    def move_uncommitted_state(self) -> None:
        """Move the state of a first interval that was interrupted.

        Spark writes the offset log at the end of an interval, and refuses to begin the first one if
        there is state already.
        """
        if not self.has_begun and self.folder.exists("query/state"):
            self.folder.move("query/state", f"{aside_folder(datetime.now(UTC))}/state")

    @property
    def query_id(self) -> str:
        """Spark's query id. Exists once the query was started, `ensure_query_id` was called, or a
        change has prepared the checkpoint."""
        text = self.folder.text("query/metadata")
        return str(self._chosen_query_id if text is None else json.loads(text)["id"])

    @property
    def _chosen_query_id(self) -> str | None:
        """The id that a change has chosen for its new query. None: Spark chooses the id."""
        replay = read_document(self.folder, Replay)
        return None if replay is None else replay.query_id

    def ensure_query_id(self) -> str:
        """The query's id; created here if Spark would create it at the start.

        Raises CheckpointError if batches were planned and the id is missing.
        """
        if not self.folder.exists("query/metadata"):
            if self.has_begun:
                raise CheckpointError(
                    f"the checkpoint is damaged: {self.folder.path('query/metadata')} with the "
                    "query's id is missing. Restore a backup (`streamjoin checkpoint restore`), or "
                    "reset"
                )
            chosen = self._chosen_query_id or str(uuid.uuid4())
            self.folder.write("query/metadata", json.dumps({"id": chosen}))
        return self.query_id

    def planned_batch(self, batch_id: int) -> str:
        """The entry of Spark's offset log for the current batch: its complete input."""
        text = self.folder.text(f"query/offsets/{batch_id}")
        assert text is not None, "Spark writes it before it begins the batch"
        return text

    def begin_exactly_once(self) -> int:
        """The first batch delivered exactly once; recorded at the first start that requires it.

        A batch that was interrupted during at-least-once delivery runs again, so it can be this
        first batch.
        """
        document = read_document(self.folder, ExactlyOnce)
        if document is None:
            last = self.last_batch_id
            document = ExactlyOnce(since=0 if last is None else last + 1)
            write_document(self.folder, document)
        return document.since

    def end_exactly_once(self) -> None:
        """Record that the following batches write no markers."""
        self.folder.remove(ExactlyOnce.file_name)

    def release_name(self) -> None:
        """Record that another query may take the name. The next start takes the name back, and
        finds no markers of the batches that are planned by now."""
        planned = self.last_planned_batch_id
        since = 0 if planned is None else planned + 1
        owner = None if self.has_owned_name else NEVER_OWNED
        write_document(self.folder, ExactlyOnce(since=since, owner=owner))

    @property
    def has_owned_name(self) -> bool:
        """Whether the query owns the name, or has released it."""
        document = read_document(self.folder, ExactlyOnce)
        return document is not None and document.owner != NEVER_OWNED

    @property
    def owns_name(self) -> bool:
        """Whether the query has a marker in each partition of the commit topic."""
        document = read_document(self.folder, ExactlyOnce)
        return document is not None and document.owner == self.query_id

    @owns_name.setter
    def owns_name(self, owns: bool) -> None:
        since = self.begin_exactly_once()
        owner = self.query_id if owns else NEVER_OWNED
        write_document(self.folder, ExactlyOnce(since=since, owner=owner))

    @property
    def replaced_queries(self) -> frozenset[str]:
        """Ids of the queries whose markers in the commit topic do not stop this one."""
        return frozenset(self._replaces.query_ids)

    @property
    def may_replace_any_query(self) -> bool:
        """Whether the user has agreed that the next start replaces any query of the name."""
        return self._replaces.any

    @property
    def _replaces(self) -> Replaces:
        return read_document(self.folder, Replaces) or Replaces(query_ids=[], any=False)

    def allow_replacing_any_query(self) -> None:
        """Allow the next start to replace any query of the name: a reset or a restored copy is a
        new query."""
        write_document(self.folder, self._replaces.model_copy(update={"any": True}))

    def replace_queries(self, query_ids: Collection[str]) -> None:
        """Add `query_ids` to the queries that may be replaced; no other query may be."""
        replaced = sorted(self.replaced_queries | set(query_ids))
        write_document(self.folder, Replaces(query_ids=replaced, any=False))


def aside_folder(now: datetime) -> str:
    return f"{ASIDE}{now:%Y-%m-%dT%H-%M-%SZ}"


def move_log_entry(folder: Folder, log: str, number: int, aside: str) -> None:
    """Move an entry of a log of Spark: `offsets` or `commits`."""
    folder.move(f"query/{log}/{number}", f"{aside}/{log}/{number}")
    # Hadoop's checksum of the file, which only the local file system has.
    folder.remove(f"query/{log}/.{number}.crc")
