"""Which states of the query allow a command, and which state it leads to."""

from collections.abc import Mapping

from job.change.request import CHANGES
from job.errors import ConflictError
from job.protocol.calls import Verb
from job.protocol.status import JobStatus, QueryState

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
IN_A_CHANGE: frozenset[Verb] = CHANGES | {"cancel"}
# A change of offsets is a reset with other start positions.
_NAMES: Mapping[Verb, str] = {"reset": "reset, or to change offsets,"}


def possible_commands(status: JobStatus) -> list[Verb]:
    """The commands that the state allows; undo and cancel only if there may be a change for
    them."""
    last = status.last_change
    is_pending = last is not None and last.made_at is None and last.failed_at is None
    impossible: set[Verb] = set()
    if status.run_id is not None and status.change is None:
        impossible.add("undo")
    if last is None or not is_pending or last.checkpoint is None:
        impossible.add("cancel")
    return [verb for verb in ALLOWED[status.state] if verb not in impossible]


def check_state_allows(verb: Verb, state: QueryState) -> None:
    """Raise ConflictError with the allowed verbs if `state` does not allow `verb`."""
    allowed = ALLOWED[state]
    if verb not in allowed:
        raise ConflictError(
            f"{_NAMES.get(verb, verb)} is not possible while the query is {state}; "
            f"possible: {', '.join(allowed)}",
            allowed=list(allowed),
        )
