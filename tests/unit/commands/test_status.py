"""The lines of `streamjoin status` about a failure."""

from datetime import timedelta

import pytest

from job.api.query import QueryView
from job.api.texts import state_lines
from job.protocol.reports import ResetReport
from job.protocol.status import Failure, QueryState
from job.spec.start_positions import StartPositions
from tests.unit.service.builders import NOW, status

FAILURE = Failure(
    code="checkpoint",
    message="records of topic e.g. clicks were deleted: the job had not read them. To skip them, "
    "run `streamjoin checkpoint skip-gap`.\nThe log has more",
    retryable=False,
    at=NOW - timedelta(hours=1),
)
RESET = ResetReport(
    requested_by="ada",
    requested_at=NOW,
    starts=StartPositions(left="latest", right="latest"),
    completed_at=NOW,
)


def failure_line(state: QueryState, reset: ResetReport | None = None) -> str:
    query = QueryView.of(status(state, last_failure=FAILURE, last_reset=reset), NOW)
    [line] = [line for line in state_lines(query, NOW) if line.startswith("last failure")]
    return line


@pytest.mark.parametrize(
    ("state", "reset"), [(QueryState.RUNNING, None), (QueryState.STOPPED, RESET)]
)
def test_failure_that_is_over_has_one_line_without_its_remedy(
    state: QueryState, reset: ResetReport | None
) -> None:
    assert (
        "last failure at 2026-11-20 11:00:00Z, over since 2026-11-20 12:00:00Z: checkpoint, "
        "records of topic e.g. clicks were deleted: the job had not read them."
    ) == failure_line(state, reset)


def test_message_of_a_failed_query_is_printed_once() -> None:
    diagnosis = f"The query is FAILED and emits no rows: {FAILURE.message}\nMore"
    failed = status(QueryState.FAILED, last_failure=FAILURE, diagnosis=diagnosis)
    lines = list(state_lines(QueryView.of(failed, NOW), NOW))

    assert ["last failure at 2026-11-20 11:00:00Z: checkpoint", diagnosis] == lines[2:4]


def test_failure_that_is_not_over_has_its_remedy() -> None:
    assert f"last failure at 2026-11-20 11:00:00Z: {FAILURE.message}" == failure_line(
        QueryState.STOPPED
    )
    before = RESET.model_copy(update={"completed_at": FAILURE.at - timedelta(hours=1)})
    assert FAILURE.message in failure_line(QueryState.STOPPED, before)
