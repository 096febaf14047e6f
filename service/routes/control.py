"""Commands. The response is sent once the job has accepted the command, with the current state."""

from http import HTTPStatus
from typing import Annotated

from fastapi import APIRouter, Query, Request, Response

from job.api.query import QueryView, RestartView
from job.api.start_requests import OffsetsRequest, ResetRequest, confirm, new_offsets
from job.protocol import calls
from job.protocol.results import ChangePlanResult, SpecFileResult, UndoResult
from job.settings import STATE_PARTITIONS_MAX
from service.access import Controller, ControlRoute
from service.routes.dependencies import DENIED, Job, now, problems
from service.routes.validate import SPEC_BODY, spec_in_body

Reason = Annotated[
    str | None,
    Query(
        max_length=calls.REASON_CHARS_MAX,
        description="Why the command is sent. It is kept with the command.",
    ),
]

control = APIRouter(
    prefix="/v1/query",
    tags=["control"],
    route_class=ControlRoute,
    responses=problems(
        **DENIED,
        s409="The state of the query forbids the command; `allowed` lists the allowed ones.",
        s413="The body is too large.",
        s503="The job does not answer.",
    ),
)


@control.put("/pause", status_code=HTTPStatus.ACCEPTED)
async def pause(job: Job, by: Controller, reason: Reason = None) -> QueryView:
    """Finish the running batch, then pause; the JVM stays up, so `resume` takes effect at once.

    With `engine: real_time` and `delivery: exactly_once`, pause, stop and restart interrupt the
    running interval, which the next start repeats. Idempotent, and persisted across crashes, as are
    `resume` and `stop`.
    """
    return await _send(job, calls.Pause(by=by, reason=reason))


@control.put("/resume", status_code=HTTPStatus.ACCEPTED)
async def resume(job: Job, by: Controller, reason: Reason = None) -> QueryView:
    """Continue a paused or stopped query from its checkpoint."""
    return await _send(job, calls.Resume(by=by, reason=reason))


@control.put("/stop", status_code=HTTPStatus.ACCEPTED)
async def stop(job: Job, by: Controller, reason: Reason = None) -> QueryView:
    """Finish the running batch, then end Spark and its JVM. The job stays up and can be resumed."""
    return await _send(job, calls.Stop(by=by, reason=reason))


@control.post("/restart", status_code=HTTPStatus.ACCEPTED)
async def restart(job: Job, by: Controller, reason: Reason = None) -> RestartView:
    """Restart the query from the same checkpoint, also after a failure, with the present content of
    the job's spec file.

    `spec_file` contains which spec the query continues with. Refused, before the query stops, if
    the file is invalid or changes frozen fields. If the file is the spec before the last change of
    the join, the running spec stays.
    """
    file = await job.read(calls.ReadSpec(), SpecFileResult)
    status = await job.command(calls.Restart(by=by, reason=reason, reads_spec=True))
    return RestartView.after(status, now(), file.message)


@control.post("/reset", status_code=HTTPStatus.ACCEPTED)
async def reset(body: ResetRequest, job: Job, by: Controller, reason: Reason = None) -> QueryView:
    """Start a new checkpoint with empty state from `start`. The query must be STOPPED.

    The old checkpoint is kept. `last_reset` in GET /v1/query contains the result. Then resume the
    query.
    """
    status = await job.status()
    confirm(body.confirm, status)
    return await _send(job, calls.Reset(by=by, reason=reason, starts=body.starts))


@control.patch("/offsets", status_code=HTTPStatus.ACCEPTED)
async def alter_offsets(
    body: OffsetsRequest, job: Job, by: Controller, reason: Reason = None
) -> QueryView:
    """Start a new checkpoint with empty state from these offsets. The query must be STOPPED.

    `left` and `right` contain the next offset to read of each partition; omitted partitions
    continue where they were. Refused if a side has several topics. The old checkpoint, with its
    state, is kept.
    """
    status = await job.status()
    confirm(body.confirm, status)
    return await _send(job, calls.Reset(by=by, reason=reason, starts=new_offsets(body, status)))


@control.post(
    "/change",
    status_code=HTTPStatus.ACCEPTED,
    responses={
        int(HTTPStatus.OK): {
            "model": ChangePlanResult,
            "description": "With `dry_run`: the plan.",
        },
        **problems(
            s415="The body is neither YAML, plain text nor JSON.",
            s429="Another spec is planned; Retry-After gives the seconds until the next try.",
        ),
    },
    openapi_extra=SPEC_BODY,
)
async def change(
    request: Request,
    job: Job,
    by: Controller,
    response: Response,
    reason: Reason = None,
    dry_run: Annotated[bool, Query(description="Only return the plan.")] = False,
    state_partitions: Annotated[
        int | None,
        Query(
            ge=1,
            le=STATE_PARTITIONS_MAX,
            description="Number of state partitions of the new query.",
        ),
    ] = None,
) -> ChangePlanResult:
    """Continue the RUNNING query with the spec in the body on a new checkpoint, without losing or
    repeating a result. Returns the plan of the change.

    While an interrupted interval is repeated, the change waits, and `waits_for` of `last_change` in
    GET /v1/query shows the progress. Then the job checks the change again, stops the query between
    two batches, and continues with the new spec, also after a restart. If the change is refused or
    fails, the query continues, and `last_change` has the error. `change` shows the replay of the
    new query. Without `state_partitions`, the number of state partitions does not change.
    """
    spec = await spec_in_body(request)
    plan = calls.ChangePlan(spec=spec, state_partitions=state_partitions)
    made = await job.read(plan, ChangePlanResult)
    if dry_run:
        response.status_code = HTTPStatus.OK
    else:
        await job.command(
            calls.Change(by=by, reason=reason, spec=spec, state_partitions=state_partitions)
        )
    return made


@control.delete("/change", status_code=HTTPStatus.ACCEPTED)
async def cancel_change(job: Job, by: Controller, reason: Reason = None) -> QueryView:
    """Cancel the change that waits; the query continues. Refused if no change waits: a change for
    which the query stops cannot be cancelled, but undone. `last_change` contains the result."""
    return await _send(job, calls.Cancel(by=by, reason=reason))


@control.post("/change/undo", status_code=HTTPStatus.ACCEPTED)
async def undo(job: Job, by: Controller, reason: Reason = None) -> QueryView:
    """Return to the query before the last change, if the new query has delivered nothing.

    Refused if `streamjoin change` made the change. The job stops the new query, and continues the
    old one from its checkpoint, with its spec. If that fails, the new query continues, and
    `last_change` in GET /v1/query has the error. While the query is STOPPED, the job checks only
    after the call whether the new query has delivered something.
    """
    await job.read(calls.CheckUndo(), UndoResult)
    return await _send(job, calls.Undo(by=by, reason=reason))


async def _send(job: Job, command: calls.Command) -> QueryView:
    return QueryView.of(await job.command(command), now())
