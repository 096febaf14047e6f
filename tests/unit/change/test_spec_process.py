"""Validation and planning in another process: results, limits, and that no process is left."""

import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from threading import Event
from typing import Any

import psutil
import pytest
from structlog.testing import capture_logs

from job.change.sent_spec import PlanRequest, WrittenSpec, plan_sent_spec
from job.change.spec_process import SpecProcess
from job.errors import BusyError, CancelledError, JobUnavailableError, SpecError
from job.plan.fingerprint import fingerprint
from job.plan.validation import ValidationRequest, validated
from job.protocol.results import ValidationResult
from job.spec.spec import spec_from_yaml
from tests.polling import wait_until
from tests.processes import has_ended
from tests.sql_worker import SQL, WORKER
from tests.unit.specs import changed, plan, spec_yaml

pytestmark = pytest.mark.processes

# The machine may be busy with other tests.
PATIENCE_SECONDS = 180.0
Start = Callable[..., SpecProcess]
HANGS = [sys.executable, "-c", "while True: pass"]


def request(text: str | None = None, frozen: dict[str, str] | None = None) -> ValidationRequest:
    return ValidationRequest(
        spec=spec_yaml() if text is None else text, state_partitions=2, frozen=frozen
    )


def children() -> list[int]:
    found = psutil.Process().children(recursive=True)
    return [child.pid for child in found if not has_ended(child)]


@pytest.fixture
def start() -> Iterator[Callable[..., SpecProcess]]:
    """Creates a SpecProcess, whose processes end with the test."""
    WORKER.start()  # the process runs until the end of all tests
    before = children()
    with ExitStack() as stack:

        def started(*arguments: Any, **options: Any) -> SpecProcess:
            specs = SpecProcess(*arguments, seconds_max=PATIENCE_SECONDS, **options)
            return stack.enter_context(closing(specs))

        yield started
    wait_until(lambda: children() == before, PATIENCE_SECONDS, "the processes have ended")


@pytest.fixture(scope="module")
def specs() -> Iterator[SpecProcess]:
    """For calls after which it answers others: its two processes take 3 CPU-seconds to start."""
    WORKER.start()
    with closing(
        SpecProcess(seconds_max=PATIENCE_SECONDS, idle_seconds_max=10 * PATIENCE_SECONDS)
    ) as shared:
        yield shared


# --- What is answered


def test_valid_spec_is_answered_with_its_plan() -> None:
    answer = validated(request(), SQL)

    assert [] == answer.problems
    assert answer.plan is not None
    assert "ad_id" in answer.plan
    assert answer.checkpoint_changes is None


def test_spec_is_compared_with_the_frozen_settings() -> None:
    frozen = fingerprint(plan())

    assert (
        []
        == validated(request(spec_yaml(output__filter="cost > 1"), frozen), SQL).checkpoint_changes
    )
    text = spec_yaml(join__type="left_outer", left__watermark_delay="1 minute")
    changes = validated(request(text, frozen), SQL).checkpoint_changes
    assert changes is not None
    assert [
        ("join.type", "inner", "left_outer"),
        ("left.watermark_delay", "10 seconds", "1 minute"),
    ] == [(each.field, each.frozen, each.wanted) for each in changes]


def test_variables_are_not_substituted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKA_PASSWORD", "hunter2-PLANTED")
    answer = validated(request(spec_yaml(left__filter="campaign = '${KAFKA_PASSWORD}'")), SQL)

    assert "environment variable KAFKA_PASSWORD is not set" in answer.problems[0].message
    assert "hunter2" not in answer.model_dump_json()


def test_process_returns_the_results_of_the_function(specs: SpecProcess) -> None:
    for text in (spec_yaml(), spec_yaml(join__type="outer"), "name: x", "", "a: ["):
        validation = request(text, fingerprint(plan()))

        answer = specs.validate(validation, Event(), within_seconds=PATIENCE_SECONDS)
        assert validated(validation, SQL) == answer


# --- Limits


def test_validation_times_out(start: Start) -> None:
    began = time.monotonic()
    with pytest.raises(JobUnavailableError, match="timed out"):
        start(HANGS).validate(request(), Event(), within_seconds=0.5)

    assert time.monotonic() - began < PATIENCE_SECONDS / 2


@pytest.mark.parametrize("who", ["the caller", "the job"])
def test_validation_is_cancelled_when_nobody_waits_for_it(start: Start, who: str) -> None:
    specs, gone = start(HANGS), Event()
    before = children()
    leave: Callable[[], None] = gone.set if who == "the caller" else specs.close
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(specs.validate, request(), gone, within_seconds=PATIENCE_SECONDS)
        wait_until(lambda: children() != before, PATIENCE_SECONDS, "the process runs")
        leave()

        with pytest.raises(CancelledError):
            waiting.result(PATIENCE_SECONDS)


def test_second_caller_waits_for_the_first_until_its_deadline(start: Start) -> None:
    specs, gone = start(HANGS), Event()
    before = children()
    with ThreadPoolExecutor() as pool:
        first = pool.submit(specs.validate, request(), gone, within_seconds=PATIENCE_SECONDS)
        wait_until(lambda: children() != before, PATIENCE_SECONDS, "the process runs")

        with pytest.raises(BusyError, match="the validation of another spec is running") as refused:
            specs.validate(request(), Event(), within_seconds=0.1)
        assert 1 == len(children()) - len(before)
        assert 1.0 < refused.value.retry_after_seconds <= PATIENCE_SECONDS
        gone.set()
        assert isinstance(first.exception(PATIENCE_SECONDS), CancelledError)


def test_at_most_eight_callers_wait(start: Start) -> None:
    specs, gone = start(HANGS), Event()
    with ThreadPoolExecutor(max_workers=9) as pool:
        calls = [
            pool.submit(specs.validate, request(), gone, within_seconds=PATIENCE_SECONDS)
            for _ in range(9)
        ]
        wait_until(lambda: specs._places._value == 0, PATIENCE_SECONDS, "all wait")

        with pytest.raises(BusyError, match="8 calls already wait for the validation of a spec"):
            specs.validate(request(), Event(), within_seconds=PATIENCE_SECONDS)
        gone.set()
        assert all(isinstance(call.exception(PATIENCE_SECONDS), CancelledError) for call in calls)


def test_second_caller_gets_its_result(specs: SpecProcess) -> None:
    waited = threading.Barrier(2)

    def validate() -> ValidationResult:
        waited.wait()
        return specs.validate(request("name: x"), Event(), within_seconds=PATIENCE_SECONDS)

    with ThreadPoolExecutor() as pool:
        answers = [pool.submit(validate) for _ in range(2)]
        assert answers[0].result(PATIENCE_SECONDS) == answers[1].result(PATIENCE_SECONDS)


# --- A change


def running_spec() -> WrittenSpec:
    text = spec_yaml(left__filter="campaign <> '${CAMPAIGN}'")
    return WrittenSpec(text, spec_from_yaml(text, {"CAMPAIGN": "spring"}))


def change_request(**changes: object) -> PlanRequest:
    running = running_spec()
    text = changed(running.text, **{"checkpoint": "/checkpoints/next", **changes})
    return PlanRequest(text, running, {"CAMPAIGN": "spring"}, state_partitions=2)


def test_messages_of_a_change_name_the_planning(start: Start) -> None:
    """The client has sent no request to validate a spec."""
    change, gone = change_request(), Event()
    crashes = [sys.executable, "-c", "raise TypeError('planted')"]
    with pytest.raises(JobUnavailableError, match="the planning failed with exit code 1"):
        start(crashes).plan(change, gone, within_seconds=PATIENCE_SECONDS)
    with pytest.raises(JobUnavailableError, match="the planning timed out"):
        start(HANGS).plan(change, gone, within_seconds=0.5)

    specs = start(HANGS)
    before = children()
    with ThreadPoolExecutor() as pool:
        first = pool.submit(specs.plan, change, gone, within_seconds=PATIENCE_SECONDS)
        wait_until(lambda: children() != before, PATIENCE_SECONDS, "the process runs")
        with pytest.raises(BusyError, match="the planning of another spec is running"):
            specs.plan(change, Event(), within_seconds=0.1)
        gone.set()
        with pytest.raises(CancelledError, match="the planning was cancelled"):
            first.result(PATIENCE_SECONDS)


def test_spec_of_a_change_is_planned_in_another_process(specs: SpecProcess) -> None:
    request = change_request()

    answer = specs.plan(request, Event(), within_seconds=PATIENCE_SECONDS)
    assert plan_sent_spec(request, SQL) == answer
    assert request.text == answer.written.text
    assert answer.plan.left.filter is not None
    assert "'spring'" in answer.plan.left.filter.sql


def test_expensive_spec_takes_little_time_of_the_driver(specs: SpecProcess) -> None:
    """The driver's interpreter also answers status calls and delivers batches."""
    term = "left.cost + {0} * left.cost - length(concat(left.campaign, right.user))"
    columns = {f"c{number}": term.format(number) for number in range(200)}
    request = change_request(output__columns={"ad_id": "left.ad_id", **columns})
    began = time.process_time()
    expected = plan_sent_spec(request, SQL)
    all_of_it = time.process_time() - began

    began = time.process_time()
    answer = specs.plan(request, Event(), within_seconds=PATIENCE_SECONDS)
    assert time.process_time() - began < all_of_it / 2
    assert expected == answer


def test_problems_of_a_change_are_those_of_the_process(specs: SpecProcess) -> None:
    request = change_request(left__event_time="nope", output__filter="nope")
    with pytest.raises(SpecError) as in_this_process:
        plan_sent_spec(request, SQL)

    with pytest.raises(SpecError) as refused:
        specs.plan(request, Event(), within_seconds=PATIENCE_SECONDS)
    assert in_this_process.value.problems == refused.value.problems


def test_crash_is_logged_and_not_returned(start: Start) -> None:
    crashes = start([sys.executable, "-c", "raise TypeError('planted')"])
    with (
        capture_logs() as logs,
        pytest.raises(JobUnavailableError, match="failed with exit code 1"),
    ):
        crashes.validate(request(), Event(), within_seconds=PATIENCE_SECONDS)

    assert "planted" in logs[0]["reason"]


def test_process_does_not_inherit_secrets(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKA_PASSWORD", "hunter2-PLANTED")
    shows = answering(
        "ValidationResult(problems=[], plan=str(os.environ), checkpoint_changes=None)"
    )

    answer = start(shows).validate(request(), Event(), within_seconds=PATIENCE_SECONDS)
    assert "PATH" in (answer.plan or "")
    assert "hunter2" not in (answer.plan or "")


def answering(validated: str) -> list[str]:
    """The server, with another function that validates."""
    program = (
        "import os\n"
        "import job.change.spec_server as server\n"
        "from job.protocol.results import ValidationResult\n"
        "def while_true():\n"
        "    while True: pass\n"
        f"server.validated = lambda request, sql: {validated}\n"
        "server.main()"
    )
    return [sys.executable, "-c", program]


def test_process_limits_its_memory(start: Start) -> None:
    specs = start(answering("bytearray(2**31)"))
    answer = specs.validate(request(), Event(), within_seconds=PATIENCE_SECONDS)
    assert "bytes of memory: make the spec smaller" in answer.problems[0].message


def test_process_limits_its_cpu_time() -> None:
    """A killed job cannot end the process."""
    before = children()
    done = subprocess.run(
        answering("while_true()"), input=pickle.dumps((1.0, request())), capture_output=True,
        check=False, timeout=PATIENCE_SECONDS, env=os.environ,
    )  # fmt: skip
    assert -signal.SIGXCPU == done.returncode, done.stderr
    wait_until(lambda: children() == before, PATIENCE_SECONDS, "its process for SQL has ended")


# --- Its life


def processes_of(specs: SpecProcess) -> list[psutil.Process]:
    """The process, and its process for SQL."""
    assert specs._running is not None
    process = psutil.Process(specs._running._process.pid)
    return [process, *process.children()]


def validate(specs: SpecProcess, **changes: Any) -> ValidationResult:
    return specs.validate(request(spec_yaml(**changes)), Event(), within_seconds=PATIENCE_SECONDS)


def test_process_answers_several_calls_and_is_started_again_if_a_part_is_killed(
    specs: SpecProcess,
) -> None:
    assert [] == validate(specs).problems
    first = processes_of(specs)
    assert 2 == len(first)
    problems = validate(specs, output__filter="nope").problems
    assert ["output.filter"] == [problem.field for problem in problems]
    assert first == processes_of(specs)

    for which in (0, 1):
        process = processes_of(specs)[which]
        process.kill()
        wait_until(
            lambda process=process: has_ended(process), PATIENCE_SECONDS, "the process has ended"
        )
        assert [] == validate(specs).problems


def test_idle_processes_end(start: Start) -> None:
    specs = start(idle_seconds_max=0.5)
    validate(specs)
    wait_until(lambda: specs._running is None, PATIENCE_SECONDS, "the process has ended")

    assert [] == validate(specs).problems


TAKES_YEARS = f"'{'a' * 60}!' rlike '(.*a){{25}}b'"
HOSTILE = {
    f"left.cost in ({', '.join(map(str, range(1_700)))})": None,
    " and ".join(["left.cost = 1"] * 500): None,
    "(" * 99 + "left.cost" + ")" * 99 + " = 1": None,
    " and ".join(["left.cost = 1"] * 3_000): "has 53,995 characters and must have at most 10,000",
    "(" * 200 + "left.cost = 1" + ")" * 200: "is nested too deep",
    "left.cost" + " + left.cost" * 700 + " = 1": "is nested too deep",
    "repeat('x', 1000000000) <> left.campaign": "Spark needed more than 256 MB of memory",
    TAKES_YEARS: "Spark needed more than",
}
"""Expressions, and the problem of each. The last two end the process that reads the SQL."""


def test_hostile_expression_is_a_problem_of_its_field_and_costs_the_processes_only(
    specs: SpecProcess,
) -> None:
    for text, problem in HOSTILE.items():
        assert [] == validate(specs).problems
        hostile = request(spec_yaml(left__filter=text))
        # The process is niced, and the machine busy; only one of them takes all its time.
        seconds = 10 if text == TAKES_YEARS else PATIENCE_SECONDS

        answer = specs.validate(hostile, Event(), within_seconds=seconds)

        found = {each.field: each.message for each in answer.problems}
        if problem is None:
            assert {} == found
        else:
            assert problem in found["left.filter"]


def test_fields_behind_a_hostile_one_are_not_checked(specs: SpecProcess) -> None:
    columns = dict.fromkeys(("ad_id", "cost", "user"), TAKES_YEARS)
    validate(specs)
    hostile = request(spec_yaml(output__columns=columns))

    answer = specs.validate(hostile, Event(), within_seconds=10)

    found = {each.field: each.message for each in answer.problems}
    assert "Spark needed more than" in found["output.columns.ad_id"]
    assert "is not checked" in found["output.columns.user"]
