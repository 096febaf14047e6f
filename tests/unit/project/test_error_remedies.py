"""Each error that can end a query has a remedy. A new class without one fails here."""

import ast
import re
from pathlib import Path

import pytest

from job import errors
from job.delivery import commit_protocol
from job.delivery.commit_protocol import NotDeliveredError
from job.delivery.exactly_once import delivery_error
from job.delivery.transactions import _RESULTS, Report, Target, slot_of
from job.errors import StreamjoinError

ROOT = Path(__file__).parents[3]
RUNBOOKS = (ROOT / "docs/runbooks.md").read_text()
ENDS_NO_QUERY = {
    *("ConflictError", "RequestError", "BusyError", "CancelledError", "ExpiredError"),  # a call
    "JobUnavailableError",  # raised in the service and in commands
    *("SetupError", "CheckpointInUseError"),  # end the job
    *("ProposalError", "SimulationError", "CostError", "_EndedError"),  # commands
    "UnknownSchemaError",  # callers in job/formats/ catch it
}
DEPENDS = "depends"
"""Of an error that is retried if its cause is temporary."""


def subclasses(root: type[Exception]) -> set[type[Exception]]:
    return {root}.union(*map(subclasses, root.__subclasses__()))


def errors_of_queries() -> dict[str, type[StreamjoinError]]:
    """By code. All of them are in job.errors."""
    names = {"StreamjoinError"}
    classes = [
        node
        for path in sorted((ROOT / "job").rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ClassDef)
    ]
    while (
        more := {
            node.name
            for node in classes
            if names & {base.id for base in node.bases if isinstance(base, ast.Name)}
        }
        - names
    ):
        names |= more
    reached = names - ENDS_NO_QUERY - {"StreamjoinError"}
    return {error.code: error for error in (getattr(errors, name) for name in reached)}


def documented() -> dict[str, tuple[str, str]]:
    """Whether an error is retried, and its remedy, by code."""
    rows = re.findall(r"^\| `(\w+)` \| (yes|no|depends) \| (.+?) \|$", RUNBOOKS, re.MULTILINE)
    return {code: (retried, remedy) for code, retried, remedy in rows}


def test_each_error_of_a_query_has_a_remedy_in_the_runbooks() -> None:
    reached, rows = errors_of_queries(), documented()

    assert sorted(reached) == sorted(rows)
    for code, error in reached.items():
        is_retried = error.__dict__.get("retryable", False)
        depends = "__init__" in error.__dict__ and error.code in {"query", "delivery"}
        assert rows[code][0] == (DEPENDS if depends else "yes" if is_retried else "no"), code
        assert len(rows[code][1].split()) >= 5, code


TARGET = Target((), "n", "q", "out", None, "n.commits", 60, 1_000)
IN_OWNERSHIP = {"DeliveredAfterCutError"}
"""Raised by `take_over` alone, which runs on the driver."""


def test_each_error_of_the_commit_protocol_has_a_result() -> None:
    failures = subclasses(NotDeliveredError) - {NotDeliveredError}

    in_job = {error for error in failures if error.__module__ == commit_protocol.__name__}
    assert {error.__name__ for error in in_job} - IN_OWNERSHIP == {
        error.__name__ for error in _RESULTS
    }


REMEDIES = {
    "aborted": "The job runs the batch again, and nothing is lost",
    "disagreement": "checkpoint and commit topic n.commits disagree: REASON",
    "fenced": "end one of them, and `restart` the other",
    "taken_over": "end one of the jobs, or change the `name` of this one",
    "unavailable": "The job runs the batch again, and nothing is lost",
    "unknown": "The job runs the batch again, and nothing is lost",
}


@pytest.mark.parametrize("result", sorted(_RESULTS.values()))
def test_each_result_of_a_failed_delivery_has_a_remedy(result: str) -> None:
    report = Report(0, result, 0, "REASON", retryable=True)

    assert REMEDIES[result] in str(delivery_error(7, report, TARGET, slot_of(0)))
    if result in {"aborted", "unavailable"}:
        lasting = Report(0, result, 0, "REASON", retryable=False)
        error = delivery_error(7, lasting, TARGET, slot_of(0))
        assert "Then `restart` runs the batch again, and nothing is lost" in str(error)
