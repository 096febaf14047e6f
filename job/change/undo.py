"""The undo of a change: the old query continues instead of the new one, which is stopped."""

from collections.abc import Iterator
from contextlib import contextmanager

from job.change import files
from job.change.query import Query
from job.checkpoint.checkpoint import Checkpoint
from job.checkpoint.cli import leased
from job.checkpoint.successor import has_delivered, read_replay, read_successor
from job.delivery.commit_protocol import NO_BATCH, DeliveredAfterCutError
from job.delivery.exactly_once import delivery_target, take_name_over
from job.errors import CheckpointError, ConflictError, StreamjoinError
from job.instants import utc_text
from job.kafka.kafka_admin import KafkaAdmin
from job.protocol.status import QueryState
from job.spec.output import Delivery


def check_undo(old: Checkpoint, new: Checkpoint) -> None:
    """Raises ConflictError if the new query may have delivered results, or does not continue the
    old one."""
    if read_successor(old) != new.folder.root:
        if read_successor(old) is None and _was_to_continue(new, old):
            raise ConflictError(_already_undone(old, new), allowed=[])
        raise ConflictError(
            f"{new.folder.root} does not continue {old.folder.root}, so there is no change to "
            "undo: check the checkpoints of both specs",
            allowed=[],
        )
    if read_replay(new) is None:
        raise ConflictError(_without_replay(old, new), allowed=[])
    if (later := read_successor(new)) is not None:
        raise ConflictError(
            f"the query of {new.folder.root} was changed, too: {later} continues it. Undo that "
            "change first",
            allowed=[],
        )
    if has_delivered(new):
        raise _undo_is_too_late(new)


def undoable(new: Checkpoint) -> tuple[Checkpoint, str]:
    """The checkpoint and the spec of the query that `new` continues. Raises ConflictError."""
    old = files.read_predecessor(new)
    check_undo(old, new)
    return old, files.read_old_spec(old)


def _was_to_continue(new: Checkpoint, old: Checkpoint) -> bool:
    replay = read_replay(new)
    return replay is not None and not replay.is_shadow and replay.old_checkpoint == old.folder.root


def _already_undone(old: Checkpoint, new: Checkpoint) -> str:
    at = files.undone_at(old)
    undone = (
        "is not complete, or was already undone"
        if at is None
        else f"was already undone at {utc_text(at)}"
    )
    return (
        f"the change from {old.folder.root} to {new.folder.root} {undone}: start the old query "
        "with `streamjoin run OLD_SPEC`, if it does not run"
    )


def _undo_is_too_late(new: Checkpoint) -> ConflictError:
    return ConflictError(
        f"the query of {new.folder.root} has begun to deliver results after the cut, so the old "
        "query would deliver them again. To return to the old spec, change from the new spec to "
        "the old one, with another `checkpoint`",
        allowed=[],
    )


def _without_replay(old: Checkpoint, new: Checkpoint) -> str:
    """Why a change cannot be undone whose new checkpoint contains no replay."""
    if new.start_positions is None:  # A reset writes them.
        return (
            f"{new.folder.root} contains no query, so it is not known whether the new query has "
            "delivered results. Restore the folder. If the new query was never started, remove "
            f"changed.json from {old.folder.root} instead, and start the old query"
        )
    return (
        f"the query of {new.folder.root} was reset after the change, and may have delivered "
        "results before, which the old query would deliver again. To return to the old spec, "
        "start it with another `checkpoint`, which begins with empty state: `streamjoin run "
        "OLD_SPEC --new-query`"
    )


def hand_back(old: Query, new: Query) -> None:
    """Let the old query continue instead of the new one, which is stopped and whose checkpoint is
    leased. Raises ConflictError as `check_undo`. The new query can then start again.

    If this process was suspended, both leases have expired, and another job may run the new query.
    """
    with leased(old.checkpoint):
        last = new.checkpoint.last_planned_batch_id  # The check is about all batches up to it.
        check_undo(old.checkpoint, new.checkpoint)
        with _name_released(new):
            files.allow_return(old.checkpoint, new.checkpoint)
            _take_name_back(old, new, last)
            old.checkpoint.desired_state = QueryState.RUNNING  # `change` has stopped it.
            check_undo(old.checkpoint, new.checkpoint)
            with files.successor_removed(old.checkpoint):
                # The new query may have started, and delivered, after the check.
                _take_name_back(old, new, last)


@contextmanager
def _name_released(new: Query) -> Iterator[None]:
    """Allows the new query to take its name back after a crash, and after an error in the block."""
    if new.plan.output.delivery is not Delivery.EXACTLY_ONCE:
        yield
        return
    new.checkpoint.release_name()
    try:
        yield
    except StreamjoinError:
        # It may have started meanwhile and taken all slots, of which the block has taken some.
        new.checkpoint.release_name()
        raise


def _take_name_back(old: Query, new: Query, last_batch: int | None) -> None:
    """Make the old query the owner of the name, so that the new one cannot deliver any more.

    `last_batch`: the last one of the new query whose results are kept back. None: there is none.
    Raises ConflictError if the new query has delivered a later batch.
    """
    if new.plan.output.delivery is not Delivery.EXACTLY_ONCE:
        return
    target = delivery_target(new.plan, KafkaAdmin(new.read_access()), old.checkpoint)
    last_batches = {new.checkpoint.query_id: NO_BATCH if last_batch is None else last_batch}
    try:
        take_name_over(old.read_frozen_plan(), target, old.checkpoint, last_batches)
    except CheckpointError as error:
        if isinstance(error.__cause__, DeliveredAfterCutError):
            raise _undo_is_too_late(new.checkpoint) from error
        raise
