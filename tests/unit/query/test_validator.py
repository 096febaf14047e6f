"""Validation in a separate process: its result, and that no process outlives its call."""

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Event

import psutil
import pytest
from structlog.testing import capture_logs

from job.change.planning import PlanRequest, planned
from job.change.sent_spec import WrittenSpec
from job.errors import BusyError, CancelledError, JobUnavailableError, SpecError
from job.join_spec.spec import spec_from_yaml
from job.plan.fingerprint import fingerprint
from job.plan.validation import ValidationRequest, validated
from job.protocol.results import ValidationResult
from job.query.validator import ChangePlanner, Validator
from tests.polling import wait_until
from tests.unit.specs import changed, plan, spec_yaml

pytestmark = pytest.mark.processes

PATIENCE_SECONDS = 60.0
HANGS = [sys.executable, "-c", "while True: pass"]


def request(text: str | None = None, frozen: dict[str, str] | None = None) -> ValidationRequest:
    return ValidationRequest(
        spec=spec_yaml() if text is None else text, state_partitions=2, frozen=frozen
    )


def children() -> list[int]:
    return [child.pid for child in psutil.Process().children(recursive=True)]


@pytest.fixture(autouse=True)
def _no_process_outlives_its_call() -> None:
    before = children()
    yield  # type: ignore[misc]
    assert before == children()


# --- What is answered


def test_valid_spec_is_answered_with_its_plan() -> None:
    answer = validated(request())

    assert [] == answer.problems
    assert answer.plan is not None
    assert "ad_id" in answer.plan
    assert answer.checkpoint_changes is None


def test_spec_is_compared_with_the_frozen_settings() -> None:
    frozen = fingerprint(plan())

    assert [] == validated(request(spec_yaml(output__filter="cost > 1"), frozen)).checkpoint_changes
    text = spec_yaml(join__type="left_outer", left__watermark_delay="1 minute")
    changes = validated(request(text, frozen)).checkpoint_changes
    assert changes is not None
    assert [
        ("join.type", "inner", "left_outer"),
        ("left.watermark_delay", "10 seconds", "1 minute"),
    ] == [(each.field, each.frozen, each.wanted) for each in changes]


def test_variables_are_not_substituted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKA_PASSWORD", "hunter2-PLANTED")
    answer = validated(request(spec_yaml(left__filter="campaign = '${KAFKA_PASSWORD}'")))

    assert "environment variable KAFKA_PASSWORD is not set" in answer.problems[0].message
    assert "hunter2" not in answer.model_dump_json()


@pytest.mark.parametrize(
    "text", [spec_yaml(), spec_yaml(join__type="outer"), "name: x", "", "a: ["]
)
def test_process_returns_the_result_of_the_function(text: str) -> None:
    validation = request(text, fingerprint(plan()))

    answer = Validator().validate(validation, Event(), within_seconds=PATIENCE_SECONDS)
    assert validated(validation) == answer


# --- Limits


def test_validation_times_out() -> None:
    began = time.monotonic()
    with pytest.raises(JobUnavailableError, match="timed out"):
        Validator(HANGS).validate(request(), Event(), within_seconds=0.5)

    assert time.monotonic() - began < PATIENCE_SECONDS / 2


@pytest.mark.parametrize("who", ["the caller", "the job"])
def test_validation_is_cancelled_when_nobody_waits_for_it(who: str) -> None:
    validator, gone = Validator(HANGS), Event()
    before = children()
    leave: Callable[[], None] = gone.set if who == "the caller" else validator.close
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(validator.validate, request(), gone, within_seconds=PATIENCE_SECONDS)
        wait_until(lambda: children() != before, PATIENCE_SECONDS, "the process runs")
        leave()

        with pytest.raises(CancelledError):
            waiting.result(PATIENCE_SECONDS)


def test_second_caller_waits_for_the_first_until_its_deadline() -> None:
    validator, gone = Validator(HANGS), Event()
    before = children()
    with ThreadPoolExecutor() as pool:
        first = pool.submit(validator.validate, request(), gone, within_seconds=PATIENCE_SECONDS)
        wait_until(lambda: children() != before, PATIENCE_SECONDS, "the process runs")

        with pytest.raises(BusyError, match="the validation of another spec is running") as refused:
            validator.validate(request(), Event(), within_seconds=0.1)
        assert 1 == len(children()) - len(before)
        assert 1.0 < refused.value.retry_after_seconds <= PATIENCE_SECONDS
        gone.set()
        assert isinstance(first.exception(PATIENCE_SECONDS), CancelledError)


def test_at_most_eight_callers_wait() -> None:
    validator, gone = Validator(HANGS), Event()
    with ThreadPoolExecutor(max_workers=9) as pool:
        calls = [
            pool.submit(validator.validate, request(), gone, within_seconds=PATIENCE_SECONDS)
            for _ in range(9)
        ]
        wait_until(lambda: validator._places._value == 0, PATIENCE_SECONDS, "all wait")

        with pytest.raises(BusyError, match="8 calls already wait for validation"):
            validator.validate(request(), Event(), within_seconds=PATIENCE_SECONDS)
        gone.set()
        assert all(isinstance(call.exception(PATIENCE_SECONDS), CancelledError) for call in calls)


def test_second_caller_gets_its_result() -> None:
    waited = threading.Barrier(2)

    def validate(validator: Validator) -> ValidationResult:
        waited.wait()
        return validator.validate(request("name: x"), Event(), within_seconds=PATIENCE_SECONDS)

    validator = Validator()
    with ThreadPoolExecutor() as pool:
        answers = [pool.submit(validate, validator) for _ in range(2)]
        assert answers[0].result(PATIENCE_SECONDS) == answers[1].result(PATIENCE_SECONDS)


# --- A change


def running_spec() -> WrittenSpec:
    text = spec_yaml(left__filter="campaign <> '${CAMPAIGN}'")
    return WrittenSpec(text, spec_from_yaml(text, {"CAMPAIGN": "spring"}))


def change_request(**changes: object) -> PlanRequest:
    running = running_spec()
    text = changed(running.text, **{"checkpoint": "/checkpoints/next", **changes})
    return PlanRequest(text, running, {"CAMPAIGN": "spring"}, state_partitions=2)


def test_messages_of_a_change_name_the_planning() -> None:
    """The client has sent no request to validate a spec."""
    change, gone = change_request(), Event()
    crashes = [sys.executable, "-c", "raise TypeError('planted')"]
    with pytest.raises(JobUnavailableError, match="the planning failed with exit code 1"):
        ChangePlanner(crashes).plan(change, gone, within_seconds=PATIENCE_SECONDS)
    with pytest.raises(JobUnavailableError, match="the planning timed out"):
        ChangePlanner(HANGS).plan(change, gone, within_seconds=0.5)

    planner = ChangePlanner(HANGS)
    before = children()
    with ThreadPoolExecutor() as pool:
        first = pool.submit(planner.plan, change, gone, within_seconds=PATIENCE_SECONDS)
        wait_until(lambda: children() != before, PATIENCE_SECONDS, "the process runs")
        with pytest.raises(BusyError, match="the planning of another spec is running"):
            planner.plan(change, Event(), within_seconds=0.1)
        gone.set()
        with pytest.raises(CancelledError, match="the planning was cancelled"):
            first.result(PATIENCE_SECONDS)


def test_spec_of_a_change_is_planned_in_another_process() -> None:
    request = change_request()

    answer = ChangePlanner().plan(request, Event(), within_seconds=PATIENCE_SECONDS)
    assert planned(request) == answer
    assert request.text == answer.written.text
    assert answer.plan.left.filter is not None
    assert "'spring'" in answer.plan.left.filter.sql


def test_expensive_spec_takes_little_time_of_the_driver() -> None:
    """The driver's interpreter also answers status calls and delivers batches."""
    term = "left.cost + {0} * left.cost - length(concat(left.campaign, right.user))"
    columns = {f"c{number}": term.format(number) for number in range(200)}
    request = change_request(output__columns={"ad_id": "left.ad_id", **columns})
    began = time.process_time()
    expected = planned(request)
    all_of_it = time.process_time() - began

    began = time.process_time()
    answer = ChangePlanner().plan(request, Event(), within_seconds=PATIENCE_SECONDS)
    assert time.process_time() - began < all_of_it / 2
    assert expected == answer


def test_problems_of_a_change_are_those_of_the_process() -> None:
    request = change_request(left__event_time="nope", output__filter="nope")
    with pytest.raises(SpecError) as in_this_process:
        planned(request)

    with pytest.raises(SpecError) as refused:
        ChangePlanner().plan(request, Event(), within_seconds=PATIENCE_SECONDS)
    assert in_this_process.value.problems == refused.value.problems


def test_crash_is_logged_and_not_returned() -> None:
    crashes = Validator([sys.executable, "-c", "raise TypeError('planted')"])
    with (
        capture_logs() as logs,
        pytest.raises(JobUnavailableError, match="failed with exit code 1"),
    ):
        crashes.validate(request(), Event(), within_seconds=PATIENCE_SECONDS)

    assert "planted" in logs[0]["reason"]


def test_process_does_not_inherit_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKA_PASSWORD", "hunter2-PLANTED")
    shows = (
        "import json, os; print(json.dumps({'problems': [], 'plan': json.dumps(dict(os.environ)),"
        " 'checkpoint_changes': None}))"
    )

    answer = Validator([sys.executable, "-c", shows]).validate(
        request(), Event(), within_seconds=PATIENCE_SECONDS
    )
    assert "PATH" in json.loads(answer.plan or "")
    assert "hunter2" not in (answer.plan or "")


@pytest.mark.parametrize(
    ("work", "expected"),
    [("bytearray(2**31)", "bytes of memory: make the spec smaller"), ("while_true()", "")],
)
def test_process_limits_itself(work: str, expected: str) -> None:
    """Also its CPU time: a killed job cannot end the process."""
    program = (
        "import job.plan.validation as v\n"
        "def while_true():\n"
        "    while True: pass\n"
        f"v.validated = lambda request: {work}\n"
        "v.main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, "2"],
        input=request().model_dump_json(), capture_output=True, text=True, check=False,
        timeout=PATIENCE_SECONDS, env=os.environ,
    )  # fmt: skip

    if expected:
        assert expected in done.stdout
    else:
        assert done.returncode < 0, done.stderr
