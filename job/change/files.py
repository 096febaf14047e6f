"""The files of a change, in the checkpoints of the old and the new query.

    <new>/change.json, <old>/changed.json   see job/checkpoint/successor.py
    requested_change.json                   the last change: in <new> if it was made, in <old> if it
                                            is pending or was refused

Until changed.json is written, only the old query can start, then only the new one. So after a crash
at any point exactly one query can start, and the change can be repeated.

With exactly-once delivery, the new query takes the name in the commit topic before changed.json is
written, so that the old query cannot deliver even if its job still runs. Before that, the old query
is allowed to take the name back, in case the change ends in between. An undo takes the name back in
the same order: the new query is allowed to take the name again, the old query takes it, then
changed.json is removed.
"""

import json
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime

from job.checkpoint.checkpoint import Checkpoint
from job.checkpoint.commits import interval_watermark_ms, next_watermark_ms
from job.checkpoint.documents import read_document, write_document
from job.checkpoint.successor import Changed, read_replay
from job.document import Document
from job.errors import CheckpointError, ConflictError, StreamjoinError
from job.event_time.partitions import Offsets
from job.instants import utc_text
from job.protocol.reports import ChangeRequestReport
from job.replay.cut import Cut, PlannedBatch
from job.replay.replay import Replay, ReplayPhase, late_rows
from job.spec.sides import SIDES, Side


class RequestedChange(Document, ChangeRequestReport):
    file_name = "requested_change.json"


@dataclass(frozen=True)
class SpecTexts:
    """YAML of both specs of a change. `${VAR}` is not replaced."""

    old: str
    new: str


def read_cut(checkpoint: Checkpoint) -> Cut:
    """The cut after the last batch that ended. Raises CheckpointError if there is none."""
    folder = checkpoint.folder
    last = checkpoint.last_batch_id
    if last is None and checkpoint.recorded_interval is not None:
        raise CheckpointError(
            f"the first interval of {folder.root} has not ended, so there is no state to continue: "
            "let the query run, and repeat the change once `last_batch` of GET /v1/query is not "
            "null"
        )
    if last is None:
        raise CheckpointError(
            f"{folder.root} has no batch that ended, so there is no state to continue: start the "
            "new spec with `streamjoin run SPEC`"
        )
    batches = _batches(checkpoint, last)
    earlier = read_replay(checkpoint)
    if earlier is not None and earlier.phase(batches[-1].ends) is not ReplayPhase.OVER:
        raise CheckpointError(
            f"the query of {folder.root} still reads records again after an earlier change, so it "
            "has no state to continue: wait until `change` of GET /v1/query has the phase `over`"
        )
    event_times = checkpoint.partitions.recorded()
    first_offsets = _first_offsets(checkpoint, earlier)
    recorded = checkpoint.recorded_interval
    intervals: frozenset[int] = frozenset() if recorded is None else recorded.batch_ids
    late, late_unknown_before = late_rows(
        *(batches, first_offsets, earlier),
        intervals=intervals,
        advanced=[each.batch_id for each in batches if _has_advanced(checkpoint, each, intervals)],
    )
    return Cut(
        query_id=checkpoint.query_id,
        batch=batches[-1],
        next_watermark_ms=next_watermark_ms(checkpoint, last),
        first_offsets=first_offsets,
        late=late,
        event_times=event_times,
        recorded_event_times=checkpoint.event_times,
        topic_ids=checkpoint.topic_ids,
        late_unknown_before=late_unknown_before,
        interval_ms=interval_watermark_ms(checkpoint),
    )


def _has_advanced(checkpoint: Checkpoint, batch: PlannedBatch, intervals: Collection[int]) -> bool:
    """Whether the batch was an interval within which the watermark has advanced."""
    is_interval = batch.batch_id in intervals
    return is_interval and next_watermark_ms(checkpoint, batch.batch_id) > batch.watermark_ms


def _batches(checkpoint: Checkpoint, last: int) -> list[PlannedBatch]:
    """The consecutive batches up to `last` that Spark's offset log still contains."""
    numbers = {int(name) for name in checkpoint.folder.names("query/offsets") if name.isdecimal()}
    first = last
    while first - 1 in numbers:
        first -= 1
    batches: list[PlannedBatch] = []
    for batch_id in range(first, last + 1):
        batch = checkpoint.batch(batch_id)
        if batch is None:  # A running query has removed its oldest entry.
            batches.clear()
        else:
            batches.append(batch)
    return batches


def _first_offsets(checkpoint: Checkpoint, earlier: Replay | None) -> Offsets:
    """Start offsets of the query, or of the first query before it. `earlier`: the replay of the
    query. None: it replaced no other one.

    The offsets are from the file of Spark's Kafka source: a byte 0, a line with the
    version, then JSON (KafkaSourceInitialOffsetWriter of the connector 4.2.0)."""
    topics = checkpoint.source_topics
    first: dict[Side, dict[int, int]] = {}
    for side in SIDES:
        text = checkpoint.folder.text(f"query/sources/{side}/0")
        if text is None:
            raise CheckpointError(
                f"the checkpoint is damaged: {checkpoint.folder.path(f'query/sources/{side}/0')} "
                "with the first offsets is missing. Restore a backup (`streamjoin checkpoint "
                "restore`)"
            )
        first[side] = topics[side].numbered(json.loads(text.splitlines()[-1]))
        if earlier is not None and earlier.first_offsets is not None:
            first[side].update(earlier.first_offsets[side])
    return first


def prepare_new(old: Checkpoint, new: Checkpoint, replay: Replay) -> None:
    """As `write_replay`. The new query cannot start before `write_successor`."""
    write_replay(new, replay)
    # Also the queries before the old one: the slot of the dead letters follows those of the state
    # partitions, so a query with another number of them has left its marker in another partition.
    new.replace_queries({replay.old_query_id, *old.replaced_queries})


def allow_return(old: Checkpoint, new: Checkpoint) -> None:
    """Allow the old query to take its name back from the new one, whose markers may have replaced
    its own, or from a query that had continued the new one. Its last batch has ended."""
    old.replace_queries({new.query_id, *new.replaced_queries} - {old.query_id})
    old.end_exactly_once()


def write_replay(new: Checkpoint, replay: Replay) -> None:
    """Write the replay of a new query. Raises CheckpointError if the folder contains a query."""
    check_is_new(new)
    # This file first: while the checkpoint contains it, a start is refused until the start
    # positions are written, or until `write_successor`.
    write_document(new.folder, replay)
    new.start_at(replay.start_positions)


def check_is_new(checkpoint: Checkpoint) -> None:
    """Raises CheckpointError if the folder contains a query."""
    if checkpoint.has_begun or checkpoint.fingerprint is not None:
        raise CheckpointError(
            f"`checkpoint` {checkpoint.folder.root} of the new spec contains a query: set a folder "
            "that is empty or does not exist"
        )


def write_successor(old: Checkpoint, new: Checkpoint, texts: SpecTexts | None = None) -> None:
    """Make the change effective. `texts`: the job of the old query continues with the new spec.
    None: the user starts the new query."""
    changed = Changed(checkpoint=new.folder.root)
    if texts is not None:
        changed = Changed(checkpoint=new.folder.root, spec=texts.new, old_spec=texts.old)
    write_document(old.folder, changed)


@contextmanager
def successor_removed(old: Checkpoint) -> Iterator[None]:
    """Undo `write_successor`. If the block raises an error, the change is effective again."""
    old.folder.remove(RequestedChange.file_name)  # This change was made.
    changed = read_document(old.folder, Changed)
    old.folder.remove(Changed.file_name)
    try:
        yield
    except StreamjoinError:
        if changed is not None:
            write_document(old.folder, changed)
        raise


def write_request(checkpoint: Checkpoint, report: ChangeRequestReport) -> None:
    write_document(checkpoint.folder, RequestedChange(**report.model_dump()))


def read_request(checkpoint: Checkpoint) -> ChangeRequestReport | None:
    """The last change of the query. None: there was none."""
    document = read_document(checkpoint.folder, RequestedChange)
    if document is None:
        return None
    return ChangeRequestReport(**document.model_dump(exclude={"format"}))


def undone_at(checkpoint: Checkpoint) -> datetime | None:
    """Time of the undo after which the query has continued. None: it is not known, or the last
    change is no undo."""
    try:
        last = read_request(checkpoint)
    except CheckpointError:  # It is damaged, and only a message needs it.
        return None
    return None if last is None or last.checkpoint is not None else last.made_at


def read_predecessor(checkpoint: Checkpoint) -> Checkpoint:
    """The checkpoint that this one continues. Raises ConflictError if there is none."""
    replay = read_replay(checkpoint)
    if replay is None or replay.is_shadow:
        if (at := undone_at(checkpoint)) is not None:
            raise ConflictError(
                f"the change of the query of {checkpoint.folder.root} was already undone at "
                f"{utc_text(at)}, and this query has continued",
                allowed=[],
            )
        raise ConflictError(
            f"the query of {checkpoint.folder.root} replaces no other query, so there is no change "
            "to undo",
            allowed=[],
        )
    return Checkpoint(checkpoint.folder.spark, replay.old_checkpoint)


def read_old_spec(checkpoint: Checkpoint) -> str:
    """YAML of the spec of this checkpoint, which another one continues.

    Raises ConflictError if the job did not make the change itself.
    """
    changed = read_document(checkpoint.folder, Changed)
    if changed is None or changed.old_spec is None:
        raise ConflictError(
            f"{checkpoint.folder.root} does not contain the old spec, because the change was not "
            "made over HTTP: run `streamjoin change OLD_SPEC NEW_SPEC --undo`, and start the old "
            "spec",
            allowed=[],
        )
    return changed.old_spec
