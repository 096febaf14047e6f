"""docker-compose.yml, used like its users do: through Kafka, the API and Prometheus."""

import json
from typing import Any

import httpx
import pytest
import yaml

from deploy.demo.topics import output_rows
from tests.docker.load import Load
from tests.docker.stack import ROOT, START_SECONDS, Stack
from tests.integration.topics import count_all
from tests.polling import wait_until
from tests.unit.deploy.test_dashboard import expressions
from tests.unit.specs import changed


def prometheus(stack: Stack, path: str, **parameters: str) -> Any:
    """An answer of Prometheus."""
    answer = httpx.get(f"{stack.prometheus}/api/v1/{path}", params=parameters, trust_env=False)
    assert 200 == answer.status_code, answer.text
    return answer.json()["data"]


def scratch(stack: Stack) -> set[str]:
    """The files that Spark keeps while it runs."""
    return {*stack.inside("job", "ls $SPARK_LOCAL_DIRS").split()} - {"lock"}


def test_every_row_is_emitted_joined_and_once(stack: Stack, load: Load) -> None:
    load.send(20)

    assert "" == load.wrong_rows(stack)


def test_nothing_is_written_outside_of_the_volumes(stack: Stack) -> None:
    for name in ("job", "service"):
        assert stack.container(name)["HostConfig"]["ReadonlyRootfs"]
        assert "no" == stack.inside(name, "touch /opt/x 2>/dev/null && echo yes || echo no").strip()


def test_secrets_are_files_and_stand_in_no_description(stack: Stack) -> None:
    secrets = {path.name: path.read_text() for path in (stack.folder / "secrets").iterdir()}
    values = {line.split()[-1] for line in secrets["tokens"].splitlines() if line[0] != "#"}

    for name in ("kafka", "job", "service", "prometheus"):
        described = json.dumps(stack.container(name))
        assert set() == {value for value in values if value in described}, name
    assert 2 == len(values)


def test_service_answers_those_who_have_a_token(stack: Stack) -> None:
    codes = {}
    for holder in (None, "prometheus", "operator"):
        with stack.service(holder) as client:
            codes[holder] = [
                client.get("/livez").status_code,
                client.get("/v1/query").status_code,
                client.put("/v1/query/resume").status_code,
            ]

    assert {
        None: [200, 401, 401],
        "prometheus": [200, 200, 403],
        "operator": [200, 200, 202],
    } == codes


def test_prometheus_scrapes_the_service_with_its_token(stack: Stack) -> None:
    def scraped() -> list[Any]:
        targets = prometheus(stack, "targets")["activeTargets"]
        return [
            it for it in targets if it["labels"]["job"] == "streamjoin" and it["health"] == "up"
        ]

    wait_until(scraped, START_SECONDS, "Prometheus has scraped the service")
    sample = prometheus(stack, "query", query="streamjoin_job_up")["result"][0]["value"][1]
    assert "1" == sample


def test_prometheus_takes_every_alert_and_none_fires(stack: Stack) -> None:
    written = yaml.safe_load((ROOT / "deploy/prometheus/alerts.yml").read_text())
    names = {rule["alert"] for group in written["groups"] for rule in group["rules"]}

    def evaluated() -> dict[str, str]:
        rules = [rule for group in prometheus(stack, "rules")["groups"] for rule in group["rules"]]
        states = {rule["name"]: f"{rule['health']} {rule['state']}" for rule in rules}
        return {} if any(it.startswith("unknown") for it in states.values()) else states

    states = wait_until(evaluated, START_SECONDS, "Prometheus has evaluated the alerts")
    assert names == set(states)
    assert set() == {name for name, it in states.items() if it.split()[1] == "firing"}
    assert {"ok"} == {it.split()[0] for it in states.values()}


@pytest.mark.parametrize(
    "expression", [pytest.param(it, id=panel["title"]) for panel, it in expressions()]
)
def test_prometheus_accepts_the_expressions_of_the_dashboard(stack: Stack, expression: str) -> None:
    assert "result" in prometheus(stack, "query", query=expression)


def test_pause_stops_the_join_and_resume_continues_it(stack: Stack, load: Load) -> None:
    with stack.service() as client:
        client.put("/v1/query/pause").raise_for_status()
        before = stack.wait_for_state("PAUSED")
        load.send(4)
        # The lag is measured while the query is paused, too: the records stay unread.
        resting = wait_until(
            lambda: (query := stack.query())["left"]["offsets_behind_latest_total"] and query,
            START_SECONDS,
            "the job sees what waits",
        )
        client.put("/v1/query/resume").raise_for_status()
    stack.wait_for_state("RUNNING")

    assert "" == load.wrong_rows(stack)
    assert "PAUSED" == resting["state"]
    assert before["left"]["input_records"] == resting["left"]["input_records"]


def test_killed_job_restarts_and_neither_loses_nor_repeats_a_result(
    stack: Stack, load: Load
) -> None:
    restarts = stack.container("job")["RestartCount"]
    results = count_all(stack.kafka, "attributed")
    load.send(10)
    wait_until(
        lambda: count_all(stack.kafka, "attributed") > results,
        START_SECONDS,
        "the job is writing results",
    )

    before = scratch(stack)
    stack.crash("job")
    load.send(10)
    stack.wait_for_state("RUNNING")

    assert "" == load.wrong_rows(stack)
    assert restarts + 1 == stack.container("job")["RestartCount"]
    assert set() == before & scratch(stack)


def test_killed_service_leaves_the_query_alone(stack: Stack, load: Load) -> None:
    run = stack.wait_for_state("RUNNING")["run_id"]

    stack.crash("service")
    load.send(4)

    assert "" == load.wrong_rows(stack)
    assert run == stack.query()["run_id"]


def test_job_ends_within_its_grace_and_continues_when_started(stack: Stack, load: Load) -> None:
    load.send(4)

    stack.compose("stop", "job")
    ended = stack.container("job")["State"]
    stack.up("job")

    assert "" == load.wrong_rows(stack)
    # Killed after the grace period it would be 137.
    assert ("exited", 0) == (ended["Status"], ended["ExitCode"])


# The last tests: their records have current event times, and all later rounds would be late.
def test_demo_load_is_joined(stack: Stack) -> None:
    stack.up("load")

    wait_for_more_rows(stack)


def test_demo_load_is_joined_by_the_real_time_engine(stack: Stack) -> None:
    """The spec chooses the engine. The task slots are more than the cores of the container."""
    stack.use_spec(
        changed(
            (ROOT / "deploy/demo/streams.yaml").read_text(),
            name="demo_in_real_time",
            checkpoint="./data/demo_in_real_time",
            engine="real_time",
            real_time={"checkpoint_interval": "5s"},
        )
    )
    stack.up("job")
    wait_until(
        lambda: stack.query().get("phase") == "real_time", START_SECONDS, "it runs in real time"
    )

    wait_for_more_rows(stack)


def wait_for_more_rows(stack: Stack) -> None:
    before = len(output_rows(stack.kafka))
    wait_until(
        lambda: len(output_rows(stack.kafka)) > before + 100,
        START_SECONDS,
        "joined rows are emitted",
    )
