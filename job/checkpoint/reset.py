"""The reset of a checkpoint: a new query in the same folder, with empty state.

`reset.json` is written before the other files change and removed after them. While it exists, the
files belong partly to the old query, and partly to the new one. The holder of the lease first
completes such a reset. Each step can be repeated, so a crash at any step loses nothing.
"""

from datetime import datetime

import structlog

from job.checkpoint.checkpoint import Checkpoint, aside_folder
from job.checkpoint.documents import (
    ExactlyOnce,
    Fingerprint,
    SkippedRecords,
    Topics,
    read_document,
    write_document,
)
from job.checkpoint.folder import Folder
from job.checkpoint.watermark_history import WatermarkHistory
from job.document import Document
from job.errors import CheckpointError
from job.event_time.filters import Filters
from job.event_time.interval import Interval
from job.event_time.partitions import RecordedEventTimes
from job.replay.replay import Replay
from job.spec.start_positions import SideStartPositions, StartPositions

_MOVED = ("query", Fingerprint.file_name, Topics.file_name)
_REMOVED = (ExactlyOnce, RecordedEventTimes, Interval, Replay, SkippedRecords, Filters)

_log = structlog.get_logger()


class PendingReset(Document):
    """A reset that has begun. Removed once the reset is complete."""

    file_name = "reset.json"
    if_damaged = "Delete the file, and repeat the reset before the query starts"
    left: SideStartPositions
    right: SideStartPositions
    aside: str
    """Folder in the checkpoint into which the old query is moved."""


def reset_checkpoint(
    checkpoint: Checkpoint, positions: StartPositions, now: datetime
) -> str | None:
    """Prepare a new query: the next start reads from `positions` with empty state. The caller has
    the lease.

    Returns the folder with the files of the old query. None: there were none.
    """
    folder = checkpoint.folder
    pending = PendingReset(left=positions.left, right=positions.right, aside=aside_folder(now))
    write_document(folder, pending)
    _complete(checkpoint, pending)
    return folder.path(pending.aside) if folder.exists(pending.aside) else None


def complete_reset(checkpoint: Checkpoint) -> None:
    """Complete a reset that was interrupted. The caller has the lease, and calls this before it
    reads another file."""
    pending = read_document(checkpoint.folder, PendingReset)
    if pending is not None:
        _complete(checkpoint, pending)
        _log.warning("reset_completed", **pending.model_dump())


def is_reset_pending(checkpoint: Checkpoint) -> bool:
    return checkpoint.folder.exists(PendingReset.file_name)


def check_no_reset_is_pending(checkpoint: Checkpoint) -> None:
    """For a command that only reads. Raises CheckpointError if a reset is not complete."""
    if is_reset_pending(checkpoint):
        raise CheckpointError(
            f"a reset of the checkpoint {checkpoint.folder.root} is not complete, so its files "
            "belong partly to the old query: complete the reset with `streamjoin checkpoint "
            "repair`, or start the job with `streamjoin run`, then repeat the command"
        )


def _complete(checkpoint: Checkpoint, pending: PendingReset) -> None:
    folder = checkpoint.folder
    checkpoint.start_at(StartPositions(left=pending.left, right=pending.right))
    checkpoint.allow_replacing_any_query()
    for document in _REMOVED:
        folder.remove(document.file_name)
    WatermarkHistory(folder).clear()  # its offsets are read again
    for name in _MOVED:
        if folder.exists(name):
            _move(folder, name, pending.aside)
    folder.remove(PendingReset.file_name)


def _move(folder: Folder, name: str, aside: str) -> None:
    """An object store moves a folder file by file: after a crash both folders have files, and the
    rest is moved next to those that were moved before."""
    while folder.exists(f"{aside}/{name}"):
        aside += "/rest"
    folder.move(name, f"{aside}/{name}")
