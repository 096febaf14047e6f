"""Each error that can end a query has a remedy. A new class without one fails here."""

import ast
import re
from pathlib import Path
from typing import Any

import pytest

from job import errors
from job.delivery import commit_protocol
from job.delivery.commit_protocol import NotDeliveredError
from job.delivery.ownership import _errors_for_users
from job.delivery.slots import Target
from job.errors import StreamjoinError
from tests.unit.delivery.interval_protocol import INTERVAL
from tests.unit.delivery.test_record_writer import Failure, Start, checkpoint_with, error_of

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


ERRORS = {
    error.__name__: error
    for error in subclasses(NotDeliveredError) - {NotDeliveredError}
    if error.__module__ == commit_protocol.__name__
}
IN_A_START = {
    "DeliveredAfterCutError": "undo the change, if it is complete; then repeat it with another",
    "TakenOverError": "End its job, then try again",
}
STARTS_AGAIN = "The job starts the query again, and nothing is lost"


@pytest.mark.parametrize("name", sorted(ERRORS))
def test_each_error_of_the_commit_protocol_has_a_remedy_at_a_start(name: str) -> None:
    details: dict[str, Any] = {}
    if name in {"AbortedError", "UnavailableError"}:
        details["retryable"] = True
    unused: Any = None
    target = Target(unused, (), "n", "q", "n.commits", 60)
    with pytest.raises(StreamjoinError, match="REASON") as shown, _errors_for_users(target):
        raise ERRORS[name]("REASON", **details)
    assert IN_A_START.get(name, STARTS_AGAIN) in str(shown.value)


REMEDIES = {
    "aborted": "The job runs the batch again, and nothing is lost",
    "disagreement": "checkpoint and commit topic tested.commits disagree: the reason",
    "fenced": "end one of them, and `restart` the other",
    "taken_over": "end one of the jobs, or change the `name` of this one",
    "unavailable": "The job runs the batch again, and nothing is lost",
}


def test_each_kind_of_a_failed_delivery_is_known() -> None:
    sources = "".join(path.read_text() for path in (ROOT / "job/writer").glob("*.java"))
    thrown = r'(?:new (?:DeliveryFailure|WriteRefusedException)\(|String [A-Z]+ =)\s*"(\w+)"'
    kinds = set(re.findall(thrown, sources)) - {INTERVAL}
    assert set(REMEDIES) == kinds


@pytest.mark.parametrize("kind", REMEDIES)
def test_each_kind_of_a_failed_delivery_has_a_remedy(
    monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    start = Start(monkeypatch, checkpoint_with(None))

    assert REMEDIES[kind] in str(error_of(start, Failure(kind, retryable=True)))
    if kind in {"aborted", "unavailable"}:
        lasting = error_of(start, Failure(kind, retryable=False))
        assert "Then `restart` runs the batch again, and nothing is lost" in str(lasting)
