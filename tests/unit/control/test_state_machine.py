"""Desired and actual state of the query, without Spark."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from threading import Event

import pytest

from job.control import state_machine
from job.control.command_log import CommandLog
from job.control.state_machine import StateMachine
from job.errors import ConflictError
from job.protocol.calls import Command, Pause, Reset, Restart, Stop
from job.protocol.status import QueryState
from job.spec.start_positions import StartPositions

PATIENCE_SECONDS = 5.0
RESET = Reset(starts=StartPositions(left="latest", right="latest"))


def test_command_sets_the_desired_state() -> None:
    machine = StateMachine(CommandLog())
    with machine.accept(Pause()):
        pass

    assert (QueryState.STARTING, QueryState.PAUSED) == (machine.state, machine.desired)
    assert (True, False) == (machine.stop_requested, machine.restart_requested)


def test_restart_is_requested_until_another_command() -> None:
    machine = StateMachine(CommandLog())
    with machine.accept(Restart()):
        pass
    assert (False, True) == (machine.stop_requested, machine.restart_requested)

    with machine.accept(Stop()):
        pass
    assert (True, False) == (machine.stop_requested, machine.restart_requested)


def test_failed_query_is_no_longer_failed_once_a_restart_is_accepted() -> None:
    """Otherwise a client that waits for FAILED or RUNNING takes the old failure for a new one."""
    machine = StateMachine(CommandLog())
    machine.become(QueryState.FAILED)

    with machine.accept(Restart()):
        pass

    assert QueryState.RESTARTING == machine.state


def test_command_that_the_state_does_not_allow_changes_nothing() -> None:
    machine = StateMachine(CommandLog())
    machine.become(QueryState.FAILED)

    with pytest.raises(ConflictError) as refused, machine.accept(Pause()):
        pytest.fail("the state does not allow it")

    assert ["restart", "stop", "undo"] == refused.value.allowed
    assert machine.desired is None


@pytest.mark.parametrize("command", [Pause(), Stop(), Restart()])
def test_pending_command_is_not_replaced_by_a_change(command: Command) -> None:
    machine = StateMachine(CommandLog())
    machine.become(QueryState.RUNNING)
    machine.check_nothing_pending("change")
    with machine.accept(command):
        pass

    with pytest.raises(
        ConflictError, match=f"change .* while {command.call} is pending"
    ) as refused:
        machine.check_nothing_pending("change")

    assert ["pause", "resume", "stop", "restart"] == refused.value.allowed


def test_end_of_the_job_is_pending() -> None:
    machine = StateMachine(CommandLog())
    machine.become(QueryState.RUNNING)
    machine.end_job()

    with pytest.raises(ConflictError, match="while the end of the job is pending"):
        machine.check_nothing_pending("change")


def test_command_that_has_taken_effect_is_not_pending() -> None:
    machine = StateMachine(CommandLog())
    machine.become(QueryState.RUNNING)
    with machine.accept(Pause()):
        pass
    machine.become(QueryState.PAUSED)

    machine.check_nothing_pending("change")


def test_command_that_fails_changes_nothing() -> None:
    machine = StateMachine(CommandLog())
    machine.become(QueryState.STOPPED)

    with pytest.raises(ConflictError), machine.accept(RESET):
        raise ConflictError("another reset is running", allowed=[])

    assert machine.desired is None


@pytest.mark.parametrize(
    ("change", "condition"),
    [
        (lambda machine: machine.become(QueryState.RUNNING), lambda machine: machine.state),
        (lambda machine: machine.end_job(), lambda machine: machine.job_is_ending),
    ],
    ids=["state", "end"],
)
def test_change_wakes_the_waiting_thread(
    change: Callable[[StateMachine], None],
    condition: Callable[[StateMachine], object],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(state_machine, "_POLL_SECONDS", 10 * PATIENCE_SECONDS)
    machine = StateMachine(CommandLog())
    before, waits = condition(machine), Event()

    def is_changed() -> bool:
        waits.set()
        return condition(machine) != before

    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(machine.wait_until, is_changed, timedelta(seconds=PATIENCE_SECONDS))
        assert waits.wait(PATIENCE_SECONDS)
        change(machine)
        waiting.result(PATIENCE_SECONDS / 2)


def test_wait_ends_at_its_timeout() -> None:
    StateMachine(CommandLog()).wait_until(lambda: False, timedelta(0))
