"""The checkpoint's folder, on any file system Hadoop reaches.

    <checkpoint>/fingerprint.json     what it freezes, written before the first batch
    <checkpoint>/desired_state.json   whether the query should run, be paused or be stopped
    <checkpoint>/starts.json          where reading started after a reset
    <checkpoint>/event_times.json     newest event time read of each partition, as of some batch
    <checkpoint>/exactly_once.json    since which batch results are delivered exactly once, and
                                      whether the query owns its name in the commit topic
    <checkpoint>/replaces.json        queries that this one may replace in the commit topic
    <checkpoint>/topics.json          Kafka's id of each topic that the query uses
    <checkpoint>/query/               Spark's own: offsets, commits, state
    <checkpoint>/aside-<time>/        what a reset put away: query/ and fingerprint.json

Spark wants its folder empty at the first start, hence the files beside it.
"""

import json
import uuid
from collections.abc import Collection, Mapping
from contextlib import suppress
from datetime import datetime

from pyspark.sql import SparkSession

from job.checkpoint.folder import Folder
from job.errors import CheckpointError
from job.event_time.partitions import Partitions
from job.join_spec.expressions import SIDES, Side
from job.join_spec.start_positions import StartPositions
from job.plan.fingerprint import changes
from job.protocol.status import QueryState

_FINGERPRINT = "fingerprint.json"
_DESIRED_STATE = "desired_state.json"
_STARTS = "starts.json"
_EXACTLY_ONCE = "exactly_once.json"
_TOPICS = "topics.json"
_REPLACES = "replaces.json"
_EVENT_TIMES = "event_times.json"
ASIDE = "aside-"
"""How the folders begin in which something is kept that was taken out of the way."""

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
        """None where there is no checkpoint yet."""
        document = self.folder.read(_FINGERPRINT)
        if document is None and self.folder.exists("query"):
            raise CheckpointError(
                f"{self.folder.root} holds a checkpoint but no {_FINGERPRINT}: what it was written "
                "for is unknown. Put the file back, or name another folder in `checkpoint` and "
                "start with --new-query"
            )
        return document

    def claim(self, frozen: Mapping[str, str] | None, wanted: Mapping[str, str]) -> None:
        """Freeze `wanted` where nothing is `frozen` yet; otherwise refuse a spec that differs."""
        found = changes(frozen or wanted, wanted)
        if found:
            lines = [
                f"  {change.field}: frozen as {change.frozen}, the spec now says {change.wanted}"
                for change in found
            ]
            raise CheckpointError(
                f"the checkpoint {self.folder.root} was begun with other settings:\n"
                + "\n".join(lines)
                + "\nPut the old values back to go on with it, or name another folder in "
                "`checkpoint` and start with --new-query (rows now waiting in state are then not "
                "joined, and results may be delivered again)"
            )
        if self.folder.read(_FINGERPRINT) != wanted:
            self.folder.write(_FINGERPRINT, wanted)

    @property
    def desired_state(self) -> QueryState:
        document = self.folder.read(_DESIRED_STATE)
        return QueryState(document["state"]) if document else QueryState.RUNNING

    @desired_state.setter
    def desired_state(self, state: QueryState) -> None:
        assert state in _DESIRABLE
        if self.desired_state is not state:
            self.folder.write(_DESIRED_STATE, {"state": state.value})

    @property
    def starts(self) -> StartPositions | None:
        """Where reading starts when this checkpoint is begun; None: as the spec says."""
        document = self.folder.read(_STARTS)
        return None if document is None else StartPositions.model_validate(document)

    @property
    def topic_ids(self) -> Mapping[str, str]:
        """Kafka's id by topic. Empty where no batch has been planned yet, and in a checkpoint of a
        version that recorded none.
        """
        document = self.folder.read(_TOPICS)
        if document is None or not self.has_begun:
            return {}
        return dict(document["topics"])

    @topic_ids.setter
    def topic_ids(self, ids: Mapping[str, str]) -> None:
        self.folder.write(_TOPICS, {"format": 1, "topics": dict(ids)})

    @property
    def has_begun(self) -> bool:
        """Whether a batch has been planned."""
        return bool(self.folder.names("query/offsets"))

    @property
    def last_batch_id(self) -> int | None:
        """The last batch that ended; None where none has."""
        names = self.folder.names("query/commits")
        return max((int(name) for name in names if name.isdecimal()), default=None)

    @property
    def offsets(self) -> dict[Side, dict[int, int]] | None:
        """Per side and partition the next offset to read, as of the last batch that ended.

        The offset log has a line for its version, one of metadata, then one a source with its name:
        `left:{"impressions":{"0":17}}` (OffsetSeqLog of Spark 4.3.0).
        """
        batch_id = self.last_batch_id
        text = None if batch_id is None else self.folder.text(f"query/offsets/{batch_id}")
        if text is None:
            return None
        read = dict(line.split(":", 1) for line in text.splitlines()[2:] if ":" in line)
        return {
            side: {
                int(partition): offset
                for offsets in json.loads(read[side]).values()
                for partition, offset in offsets.items()
            }
            for side in SIDES
        }

    @property
    def partitions(self) -> Partitions:
        """What was read of the partitions as of the last batch that ended.

        The event times are lower bounds. A partition has none if its entry in the file is missing,
        or if the file cannot be read: then the watermark waits for records of the partition.
        """
        document = None
        with suppress(CheckpointError):
            document = self.folder.read(_EVENT_TIMES)
        return Partitions.from_document(document, self.offsets)

    @partitions.setter
    def partitions(self, partitions: Partitions) -> None:
        self.folder.write(_EVENT_TIMES, partitions.document())

    @property
    def query_id(self) -> str:
        """Spark's; it exists once the query has been started, or `ensure_query_id` was called."""
        return str(json.loads(self.folder.text("query/metadata") or "{}")["id"])

    def ensure_query_id(self) -> str:
        """The query's id; a new one where Spark would choose one at the start.

        CheckpointError if batches were planned and the id is gone.
        """
        if not self.folder.exists("query/metadata"):
            if self.has_begun:
                raise CheckpointError(
                    f"the checkpoint is damaged: {self.folder.path('query/metadata')} is missing, "
                    "which holds the query's id. Restore a backup (`streamjoin checkpoint "
                    "restore`), or reset"
                )
            self.folder.write("query/metadata", {"id": str(uuid.uuid4())})
        return self.query_id

    def planned(self, batch_id: int) -> str:
        """The line of Spark's offset log for a batch that is at work: what it is made from."""
        text = self.folder.text(f"query/offsets/{batch_id}")
        assert text is not None, "Spark writes it before it begins the batch"
        return text

    def delivers_exactly_once_since(self) -> int:
        """The first batch that is; noted at the first start that wants it.

        A batch that was cut short when it was delivered at least once is run again, so it is one.
        """
        document = self.folder.read(_EXACTLY_ONCE)
        if document is None:
            last = self.last_batch_id
            document = {"since": 0 if last is None else last + 1}
            self.folder.write(_EXACTLY_ONCE, document)
        return int(document["since"])

    @property
    def owns_name(self) -> bool:
        """Whether the query has a marker in each partition of the commit topic."""
        document = self.folder.read(_EXACTLY_ONCE)
        return document is not None and document.get("owner") == self.query_id

    @owns_name.setter
    def owns_name(self, owns: bool) -> None:
        since = self.delivers_exactly_once_since()
        owner = {"owner": self.query_id} if owns else {}
        self.folder.write(_EXACTLY_ONCE, {"format": 1, "since": since, **owner})

    @property
    def replaced_queries(self) -> frozenset[str]:
        """Ids of the queries whose markers in the commit topic do not stop this one."""
        document = self.folder.read(_REPLACES)
        return frozenset(document["query_ids"] if document else ())

    @property
    def may_replace_any_query(self) -> bool:
        """Whether the user has agreed to a new query whose start has not happened yet."""
        document = self.folder.read(_REPLACES)
        return document is not None and document["any"]

    def allow_replacing_any_query(self) -> None:
        """For the next start: a reset, or a restore of an older copy, begins a new query."""
        self._write_replaces(self.replaced_queries, may_replace_any=True)

    def replace_queries(self, query_ids: Collection[str]) -> None:
        """Note that `query_ids`, and no others, may be replaced from now on."""
        self._write_replaces(self.replaced_queries | set(query_ids), may_replace_any=False)

    def _write_replaces(self, query_ids: Collection[str], *, may_replace_any: bool) -> None:
        self.folder.write(
            _REPLACES, {"format": 1, "query_ids": sorted(query_ids), "any": may_replace_any}
        )

    def delivers_at_least_once(self) -> None:
        """From here on batches leave no marker."""
        self.folder.remove(_EXACTLY_ONCE)

    def renew(self, starts: StartPositions, now: datetime) -> str | None:
        """Make the next start a first one that reads from `starts`; where the old one is kept.

        `starts` is written first: Spark heeds it only where there is no checkpoint, so a crash at
        any point leaves either the old checkpoint at work or a new one with the right start.
        """
        self.folder.write(_STARTS, starts.model_dump(mode="json"))
        self.allow_replacing_any_query()
        self.folder.remove(_EXACTLY_ONCE)
        self.folder.remove(_EVENT_TIMES)
        if not self.folder.exists("query"):
            return None
        aside = aside_folder(now)
        for name in ("query", _FINGERPRINT, _TOPICS):
            if self.folder.exists(name):
                self.folder.move(name, f"{aside}/{name}")
        return self.folder.path(aside)


def aside_folder(now: datetime) -> str:
    return f"{ASIDE}{now:%Y-%m-%dT%H-%M-%SZ}"
