"""A change that another process than the job makes, for `streamjoin change`.

The old query stops between two batches: the job on the control socket stops it.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime
from typing import Literal

import structlog

from job.change import files, planner
from job.change.comparison import compare
from job.change.hand_over import hand_over
from job.change.old_query import (
    POLL_SECONDS,
    RUNNING,
    await_repetition,
    check_same_query,
    interval_to_repeat,
    read_job,
    seconds_to_stop,
)
from job.change.plan import ChangePlan
from job.change.query import Query
from job.change.undo import check_undo, hand_back
from job.checkpoint.checkpoint import Checkpoint
from job.checkpoint.cli import leased, view_checkpoint
from job.checkpoint.commands import carry_commands
from job.checkpoint.reset import check_no_reset_is_pending
from job.checkpoint.successor import check_not_changed, read_successor
from job.errors import JobUnavailableError, StreamjoinError
from job.plan.plan import JoinPlan
from job.protocol.caller import call
from job.protocol.calls import Resume, Stop
from job.protocol.reports import ChangeRequestReport
from job.protocol.status import JobStatus, QueryState
from job.settings import JobSettings
from job.waiting import wait_until

_log = structlog.get_logger()
_BY = "streamjoin change"


def plan(
    old: JoinPlan, new: JoinPlan, settings: JobSettings, *, is_shadow: bool = False
) -> ChangePlan:
    """The plan of a change at this moment. The old query may run. `is_shadow`: as `shadow`."""
    compare(old, new, is_shadow=is_shadow)
    with _queries(old, new, settings) as queries:
        shown = planner.plan_change(*queries, settings.state_partitions, is_shadow=is_shadow)
        job = read_job(old, settings)
        if not is_shadow:
            shown = replace(shown, repeats=interval_to_repeat(queries[0], job))
    return replace(shown, late_rows=None if job is None else job.totals.late_rows)


def change(
    old: JoinPlan,
    new: JoinPlan,
    settings: JobSettings,
    progress: Callable[[str], None] = lambda _: None,
    by: str = _BY,
) -> ChangePlan | None:
    """Make the change. None: the change is already complete.

    `progress`: called with lines for the user. `by`: as in CommandReport. Raises StreamjoinError if
    the change is refused. The old query can then start again.
    """
    compare(old, new)
    with _queries(old, new, settings) as (old_query, new_query):
        old_checkpoint, new_checkpoint = old_query.checkpoint, new_query.checkpoint
        if read_successor(old_checkpoint) == new_checkpoint.folder.root:
            return None
        # The old query stops only if the change is possible.
        planner.check_change(old_query, new_query, settings.state_partitions)
        if await_repetition(old_query, settings, progress):
            planner.check_change(old_query, new_query, settings.state_partitions)
        with leased(new_checkpoint):
            with (
                _stopping_job(old_query, settings, by, "the join is changed"),
                leased(old_checkpoint),
            ):
                made = hand_over(old_query, new_query, settings.state_partitions)
            _record(old_query, new_query, "change", by)
    return made


def shadow(old: JoinPlan, new: JoinPlan, settings: JobSettings) -> ChangePlan:
    """Prepare a query that runs next to the old one, with the state of the old one. It can start
    afterwards."""
    compare(old, new, is_shadow=True)
    with _queries(old, new, settings) as (old_query, new_query), leased(new_query.checkpoint):
        check_not_changed(old_query.checkpoint)
        plan = planner.plan_change(old_query, new_query, settings.state_partitions, is_shadow=True)
        files.write_replay(new_query.checkpoint, plan.replay)
    return plan


def undo(old: JoinPlan, new: JoinPlan, settings: JobSettings, by: str = _BY) -> None:
    """Let the old query run at its next start. Raises ConflictError if the new query may have
    delivered results."""
    with _queries(old, new, settings) as (old_query, new_query):
        check_undo(old_query.checkpoint, new_query.checkpoint)
        with (
            _stopping_job(new_query, settings, by, "the change is undone"),
            leased(new_query.checkpoint),
        ):
            hand_back(old_query, new_query)
        _record(new_query, old_query, "undo", by)


def _record(before: Query, after: Query, verb: Literal["change", "undo"], by: str) -> None:
    """Write the commands, and the report of the change, for the query that continues."""
    folders, now = (before.checkpoint.folder, after.checkpoint.folder), datetime.now(UTC)
    new = after.plan.checkpoint if verb == "change" else None
    report = ChangeRequestReport(requested_by=by, requested_at=now, checkpoint=new, made_at=now)
    try:
        carry_commands(*folders, verb, by, now)
        files.write_request(after.checkpoint, report)
    except Exception as error:  # The change is made.
        _log.warning("commands_not_written", reason=str(error).partition("\n")[0])


@contextmanager
def _queries(old: JoinPlan, new: JoinPlan, settings: JobSettings) -> Iterator[tuple[Query, Query]]:
    with view_checkpoint(old, settings) as opened:
        new_checkpoint = Checkpoint(opened.spark, new.checkpoint)
        for checkpoint in (opened.checkpoint, new_checkpoint):
            check_no_reset_is_pending(checkpoint)
        yield Query(old, opened.checkpoint), Query(new, new_checkpoint)


@contextmanager
def _stopping_job(query: Query, settings: JobSettings, by: str, reason: str) -> Iterator[None]:
    """Stops the query of the job on the control socket, if the job has the name of `query`. If this
    or the block fails, a query that ran before continues. `reason`: in the list of commands.

    The job refuses both commands if it runs another query, for example because another client has
    changed the join since the check of the change.
    """
    plan, checkpoint = query.plan, query.checkpoint
    job = read_job(plan, settings)
    if job is not None and job.state is not QueryState.STOPPED:
        check_same_query(job, checkpoint)
    query_id = checkpoint.query_id
    try:
        stop = Stop(by=by, reason=reason, query_id=query_id, completes_interval=True)
        _stop_job(job, plan, settings, stop)
        yield
    except BaseException:
        if job is not None and job.state in RUNNING:
            with suppress(StreamjoinError, OSError):  # the job may have ended
                call(settings.socket, Resume(by=by, query_id=query_id))
        raise


def _stop_job(job: JobStatus | None, plan: JoinPlan, settings: JobSettings, stop: Stop) -> None:
    """Stop the query of a job. `job`: its status. None: no job runs."""
    if job is None or job.state is QueryState.STOPPED:
        return
    with suppress(OSError):  # the job has ended since
        call(settings.socket, stop)

    def has_stopped() -> bool:
        now = read_job(plan, settings)
        return now is None or now.state is QueryState.STOPPED

    seconds = seconds_to_stop(plan, settings)
    if not wait_until(has_stopped, seconds, POLL_SECONDS):
        raise JobUnavailableError(
            f"the job on {settings.socket} did not stop within {seconds:.0f} s: check its log, "
            "then repeat the change"
        )
