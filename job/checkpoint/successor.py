"""Which of two queries may start: the one of this checkpoint, or the one that continues it.

    <new>/change.json     the replay of the new query (job/replay/replay.py)
    <old>/changed.json    the folder of the new checkpoint, and both specs of a change over HTTP

A change writes both (job/change/files.py). Until changed.json is written, only the old query can
start. Afterwards only the new query can start.
"""

from job.checkpoint.checkpoint import Checkpoint
from job.checkpoint.documents import read_document
from job.document import Document
from job.errors import CheckpointError
from job.replay.replay import Replay, ReplayPhase


class Changed(Document):
    file_name = "changed.json"
    checkpoint: str
    """Checkpoint of the new query."""
    spec: str | None = None
    """YAML of the new spec. None: the user starts the new query."""
    old_spec: str | None = None


def read_successor(checkpoint: Checkpoint) -> str | None:
    """The checkpoint that continues this one. None: the query of this one may start."""
    changed = read_document(checkpoint.folder, Changed)
    return None if changed is None else changed.checkpoint


def read_successor_spec(checkpoint: Checkpoint) -> str | None:
    """YAML of the spec that continues this checkpoint. None: no query continues it, or the user
    starts that query."""
    changed = read_document(checkpoint.folder, Changed)
    return None if changed is None else changed.spec


def check_not_changed(checkpoint: Checkpoint) -> None:
    """Raises CheckpointError if another checkpoint continues this one."""
    if (continued_in := read_successor(checkpoint)) is not None:
        raise CheckpointError(
            f"the query of {checkpoint.folder.root} was changed: {continued_in} continues it. "
            "Start the new spec with `streamjoin run`; or, if it has delivered nothing, return to "
            "the old spec with `streamjoin change OLD_SPEC NEW_SPEC --undo`"
        )


def read_replay(checkpoint: Checkpoint) -> Replay | None:
    """The replay of the query. None: the query replaces no other one."""
    return read_document(checkpoint.folder, Replay)


def read_replay_to_run(checkpoint: Checkpoint) -> Replay | None:
    """As `read_replay`. Raises CheckpointError if the change is not complete or was undone."""
    replay = read_replay(checkpoint)
    if replay is None:
        return None
    if replay.is_shadow:
        if checkpoint.start_positions != replay.start_positions:
            raise CheckpointError(
                f"{checkpoint.folder.root} is not completely prepared: run `streamjoin change "
                "OLD_SPEC NEW_SPEC --shadow` again"
            )
        return replay
    if not _is_continued_in(checkpoint, replay):
        raise CheckpointError(
            f"the change from {replay.old_checkpoint} to {checkpoint.folder.root} is not complete, "
            "or was undone: run `streamjoin change OLD_SPEC NEW_SPEC`, or start the old spec"
        )
    return replay


def _is_continued_in(checkpoint: Checkpoint, replay: Replay) -> bool:
    """Whether `checkpoint` continues the old one."""
    old = Checkpoint(checkpoint.folder.spark, replay.old_checkpoint)
    continued_in = read_successor(old)
    if continued_in == checkpoint.folder.root:
        return True
    # A change whose new query has delivered cannot be undone. The user may since have deleted the
    # old checkpoint, or moved the new one.
    return has_delivered(checkpoint) and (continued_in is not None or not old.has_begun)


def has_delivered(checkpoint: Checkpoint) -> bool:
    """Whether the query has planned a batch, or begun an interval, whose results are not kept
    back."""
    replay = read_replay(checkpoint)
    if replay is None:
        return checkpoint.has_begun
    if checkpoint.recorded_interval is not None:
        return True  # An interval is in Spark's log only when it has ended.
    if replay.phase(checkpoint.offsets) is not ReplayPhase.OVER:
        return False
    names = checkpoint.folder.names("query/offsets")
    batch = checkpoint.batch(max(int(name) for name in names if name.isdecimal()))
    return batch is not None and not replay.keeps_back(batch)
