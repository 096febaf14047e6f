"""Which states of the query allow a command, and which state it leads to."""

from collections.abc import Mapping

from job.errors import ConflictError
from job.protocol.calls import Verb
from job.protocol.status import QueryState

# A verb without effect is allowed: commands may be repeated.
ALLOWED: Mapping[QueryState, tuple[Verb, ...]] = {
    QueryState.STARTING: ("pause", "resume", "stop", "restart", "cancel"),
    QueryState.RUNNING: ("pause", "resume", "stop", "restart", "change", "undo", "cancel"),
    QueryState.RESTARTING: ("pause", "resume", "stop", "restart", "cancel"),
    QueryState.PAUSED: ("pause", "resume", "stop", "undo"),
    QueryState.STOPPED: ("stop", "resume", "reset", "undo"),
    QueryState.FAILED: ("restart", "stop", "undo"),
}
DESIRED: Mapping[Verb, QueryState] = {
    "pause": QueryState.PAUSED,
    "resume": QueryState.RUNNING,
    "stop": QueryState.STOPPED,
    "restart": QueryState.RUNNING,
    "reset": QueryState.STOPPED,
    "change": QueryState.RUNNING,  # It stops once it waits for nothing.
    "undo": QueryState.STOPPED,
    "cancel": QueryState.RUNNING,
}
CHANGES: frozenset[Verb] = frozenset({"change", "undo"})
"""Verbs after which another query continues."""
IN_A_CHANGE: frozenset[Verb] = CHANGES | {"cancel"}
# A change of offsets is a reset with other start positions.
_NAMES: Mapping[Verb, str] = {"reset": "reset, or to change offsets,"}


def check_allowed(verb: Verb, state: QueryState) -> None:
    """Raise ConflictError with the allowed verbs if `state` does not allow `verb`."""
    allowed = ALLOWED[state]
    if verb not in allowed:
        raise ConflictError(
            f"{_NAMES.get(verb, verb)} is not possible while the query is {state}; "
            f"possible: {', '.join(allowed)}",
            allowed=list(allowed),
        )


def check_during_change(verb: Verb, *, waits: bool, is_made: bool) -> None:
    """Raise ConflictError if a change of the join forbids `verb`.

    `waits`: a change waits while the query runs. `is_made`: the query stops, or has stopped, for a
    change.
    """
    if is_made:
        raise ConflictError(
            "the join is being changed: try again once `last_change` has failed or the new query "
            "runs",
            allowed=[],
        )
    if verb in CHANGES and waits:
        raise ConflictError(
            "another change of the join waits (`last_change`): cancel it with DELETE "
            "/v1/query/change, or wait until it is made",
            allowed=["pause", "stop", "restart", "cancel"],
        )
    if verb == "cancel" and not waits:
        raise ConflictError(
            "no change waits, so there is none to cancel: `last_change` in GET /v1/query contains "
            "the last one",
            allowed=[],
        )
