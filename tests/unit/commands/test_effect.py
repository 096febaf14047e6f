"""The commands that wait until they have taken effect, on the real protocol of a small job."""

from datetime import timedelta
from pathlib import Path

import pytest

from job.protocol.calls import Command
from job.protocol.status import JobStatus, QueryState
from tests.unit.commands.called import streamjoin
from tests.unit.service.builders import NO_BROKER, NOW, SmallJob, status


def test_command_is_sent_with_the_user_and_waits_for_its_effect(spec: Path, job: SmallJob) -> None:
    paused = streamjoin("pause", spec, "--reason", "new brokers")

    assert (0, "ad_attribution is PAUSED\n") == (paused.exit_code, paused.stdout)
    ((verb, by),) = job.commands
    assert ("pause", "user") == (verb, by.partition(":")[0])
    assert job.last_command.not_after is not None
    assert "new brokers" == job.last_command.reason


@pytest.mark.usefixtures("job")
def test_command_without_effect_in_time_exits_1(spec: Path) -> None:
    late = streamjoin("restart", spec, "--wait", "0.1")  # the small job stays RESTARTING

    assert 1 == late.exit_code
    assert "restart was accepted, and the query is still RESTARTING after 0.1 s" in late.stderr
    assert 0 == streamjoin("restart", spec, "--wait", "0").exit_code


def test_query_that_fails_after_the_command_exits_1_with_its_reason(
    spec: Path, job: SmallJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: Command) -> None:
        job.current = status(QueryState.FAILED, last_failure=NO_BROKER)

    monkeypatch.setattr(job, "command", fail)
    failed = streamjoin("resume", spec)

    assert 1 == failed.exit_code
    assert "the query has failed: no broker answers at localhost:9092" in failed.stderr


def start_without_progress(job: SmallJob, monkeypatch: pytest.MonkeyPatch, run: str) -> None:
    """A command leads to RUNNING in this run, and no batch has ended since."""
    since = NOW + timedelta(seconds=1)
    running = {"state": QueryState.RUNNING, "run_id": run, "state_since": since}

    def start(_: Command) -> None:
        job.current = job.current.model_copy(update=running)

    monkeypatch.setattr(job, "command", start)


def pause(job: SmallJob) -> None:
    """The query has made progress in its run, and is paused."""
    progress = {"last_progress_at": NOW, "state": QueryState.PAUSED}
    job.current = job.current.model_copy(update=progress)


@pytest.mark.parametrize(
    ("verb", "run"), [("resume", "run-3"), ("restart", "run-3"), ("resume", "run-2")]
)
def test_start_that_fails_in_its_next_batch_exits_1_with_its_reason(
    verb: str, run: str, spec: Path, job: SmallJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pause of the same run too: the progress before the pause is not that of the resume."""
    pause(job)
    start_without_progress(job, monkeypatch, run)
    reads = iter(range(10))
    answer = job.status

    def fail_at_the_third_read_of_the_run() -> JobStatus:
        if job.current.state is QueryState.RUNNING and next(reads) == 3:
            job.current = status(QueryState.FAILED, last_failure=NO_BROKER)
        return answer()

    monkeypatch.setattr(job, "status", fail_at_the_third_read_of_the_run)
    failed = streamjoin(verb, spec)

    assert 1 == failed.exit_code
    assert "the query has failed: no broker answers at localhost:9092" in failed.stderr


@pytest.mark.parametrize("run", ["run-2", "run-3"])
def test_start_takes_effect_with_its_first_progress(
    run: str, spec: Path, job: SmallJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    pause(job)
    start_without_progress(job, monkeypatch, run)
    long_batch = streamjoin("resume", spec, "--wait", "0.1")

    assert 0 == long_batch.exit_code, long_batch.stderr
    first, second = long_batch.stdout.splitlines()
    assert "ad_attribution is RUNNING" == first
    assert "it has made no progress yet: look again with `streamjoin status`" == second

    progress = {"last_progress_at": NOW + timedelta(seconds=2)}
    job.current = job.current.model_copy(update=progress)
    assert "ad_attribution is RUNNING\n" == streamjoin("resume", spec).stdout


@pytest.mark.parametrize(("verb", "state"), [("pause", "PAUSED"), ("stop", "STOPPED")])
def test_end_of_a_run_takes_effect_at_once(
    verb: str, state: str, spec: Path, job: SmallJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A query that is paused or stopped makes no progress afterwards."""
    reads = []
    answer = job.status

    def end(_: Command) -> None:
        ended = {"state": QueryState[state], "state_since": NOW + timedelta(seconds=1)}
        job.current = job.current.model_copy(update=ended)

    monkeypatch.setattr(job, "command", end)
    monkeypatch.setattr(job, "status", lambda: reads.append(verb) or answer())
    done = streamjoin(verb, spec, "--wait", "5")

    assert (0, f"ad_attribution is {state}\n") == (done.exit_code, done.stdout)
    assert len(reads) < 5


@pytest.mark.usefixtures("job")
def test_command_that_is_not_waited_for_says_so(spec: Path) -> None:
    sent = streamjoin("restart", spec, "--wait", "0")

    assert "restart is accepted, and may not have taken effect: ad_attribution is " in sent.stdout
