"""Commands: each is answered once the job has taken note, with the state at that moment."""

from http import HTTPStatus

from fastapi import APIRouter

from job.join_spec.start_positions import StartPositions
from job.protocol.control import Verb
from service.access import Controller, ControlRoute
from service.routes.dependencies import REFUSED, Job, now, problems
from service.start_requests import OffsetsRequest, ResetRequest, confirm, new_offsets
from service.views import QueryView

control = APIRouter(
    prefix="/v1/query",
    tags=["control"],
    route_class=ControlRoute,
    responses=problems(
        **REFUSED,
        s409="The query's state forbids the command; `allowed` lists the others.",
        s413="The body is too large.",
        s503="The job does not answer.",
    ),
)


@control.put("/pause", status_code=HTTPStatus.ACCEPTED)
async def pause(job: Job, by: Controller) -> QueryView:
    """Finish the batch at work, then rest; Spark stays warm. The answer is the state right now."""
    return await _commanded(job, "pause", by)


@control.put("/resume", status_code=HTTPStatus.ACCEPTED)
async def resume(job: Job, by: Controller) -> QueryView:
    """Go on where the checkpoint stands."""
    return await _commanded(job, "resume", by)


@control.put("/stop", status_code=HTTPStatus.ACCEPTED)
async def stop(job: Job, by: Controller) -> QueryView:
    """Finish the batch at work, then end Spark. The job stays, and can be resumed."""
    return await _commanded(job, "stop", by)


@control.post("/restart", status_code=HTTPStatus.ACCEPTED)
async def restart(job: Job, by: Controller) -> QueryView:
    """Start the query anew on the same checkpoint."""
    return await _commanded(job, "restart", by)


@control.post("/reset", status_code=HTTPStatus.ACCEPTED)
async def reset(body: ResetRequest, job: Job, by: Controller) -> QueryView:
    """Begin anew while the query is STOPPED: empty state, read from where `start` says.

    The old checkpoint is kept aside. `last_reset` of GET /v1/query says when it is done and what
    came of it; then resume.
    """
    status = await job.status()
    confirm(body.confirm, status)
    return await _commanded(job, "reset", by, body.starts)


@control.patch("/offsets", status_code=HTTPStatus.ACCEPTED)
async def alter_offsets(body: OffsetsRequest, job: Job, by: Controller) -> QueryView:
    """Read on from other offsets while the query is STOPPED; begins anew, as a reset does.

    Of each side and partition the next offset to read; what is left out keeps what was read. The
    rows held in state are put aside with the old checkpoint.
    """
    status = await job.status()
    confirm(body.confirm, status)
    return await _commanded(job, "reset", by, new_offsets(body, status.brokers))


async def _commanded(
    job: Job, verb: Verb, by: str, starts: StartPositions | None = None
) -> QueryView:
    return QueryView.of(await job.command(verb, by=by, starts=starts), now())
