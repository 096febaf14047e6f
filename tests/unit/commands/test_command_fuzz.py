"""No command ends in a stack trace, whatever its files, options and standard streams are."""

from pathlib import Path

import pytest

from tests.sql_worker import shared
from tests.unit.commands.command_cases import Call, calls, commands
from tests.unit.commands.forked_command import Outcome, outcomes

pytestmark = pytest.mark.processes

EXIT_CODES = {0, 1, 2}
"""As in docs/compatibility.md."""
WITHOUT_SERVERS = {"validate", "plan", "simulate", "test", "schema"}


def problem_of(outcome: Outcome) -> str | None:
    """None: the command ended as it should."""
    call, code, errors = outcome.call, outcome.exit_code, outcome.errors
    if code not in EXIT_CODES or "Traceback" in errors:
        return f"{call}: exit code {code}\n{errors[-1_500:]}"
    is_on_stdout = call.arguments[0] in {"test", "check"}
    if code and not errors and call.stdout == "normal" and not is_on_stdout:
        return f"{call}: exit code {code} without a message"
    return None


def test_every_command_is_called() -> None:
    names = {" ".join(path) for path, _ in commands()}

    assert {"init", "run", "topics create", "checkpoint repartition"} <= names


def test_no_command_ends_in_a_stack_trace(tmp_path: Path) -> None:
    files, folders = tmp_path / "files", tmp_path / "runs"
    files.mkdir()
    folders.mkdir()

    with shared(tmp_path) as worker:
        ended = outcomes(list(calls(files)), folders, worker.address)

    problems = [problem for outcome in ended if (problem := problem_of(outcome))]
    assert [] == problems[:5], f"{len(problems)} calls"
    valid = {o.call.arguments[0]: o.exit_code for o in ended if o.call == Call(o.call.arguments)}
    assert dict.fromkeys(WITHOUT_SERVERS, 0) == {name: valid[name] for name in WITHOUT_SERVERS}


def test_stack_trace_and_undocumented_exit_code_are_problems() -> None:
    call = Call(("validate", "x"))

    assert problem_of(Outcome(call, None, "Traceback (most recent call last)")) is not None
    assert problem_of(Outcome(call, 120, "")) is not None
    assert problem_of(Outcome(call, 1, "")) == f"{call}: exit code 1 without a message"
    assert problem_of(Outcome(call, 2, "x: 1 problem")) is None
