"""The alert rules: they use existing metrics, fire at the right time, and link to a runbook."""

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.programs import program
from tests.unit.deploy.promql import mistakes

pytestmark = pytest.mark.processes

ROOT = Path(__file__).parents[3]
RULES_FILE = ROOT / "deploy/prometheus/alerts.yml"
CASES_FILE = ROOT / "deploy/prometheus/alerts.test.yml"
[GROUP] = yaml.safe_load(RULES_FILE.read_text())["groups"]
RULES = {rule["alert"]: rule for rule in GROUP["rules"]}
BARE_COUNTER = "is a counter: without rate() or increase() it has no meaning"
RUNBOOKS = (ROOT / "docs/runbooks.md").read_text()


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
def test_alert_queries_only_exposed_metrics(rule: dict[str, Any]) -> None:
    assert [] == [*mistakes(rule["expr"])]


@pytest.mark.parametrize(
    ("expression", "mistake"),
    [
        ("streamjoin_no_such_metric > 0", "streamjoin_no_such_metric is not exposed"),
        ('streamjoin_job_up{topic="x"} == 0', "streamjoin_job_up has no label topic"),
        ('streamjoin_query_state{state="BROKEN"} == 1', "state is never BROKEN"),
        ('streamjoin_query_state{state=~"PAUSED|DEAD"} == 1', "state is never DEAD"),
        ("streamjoin_late_rows_total > 5", f"streamjoin_late_rows_total {BARE_COUNTER}"),
        ("sum by (topic) (streamjoin_job_up)", "there is no label topic"),
    ],
)
def test_mistake_in_an_expression_is_found(expression: str, mistake: str) -> None:
    assert [mistake] == [*mistakes(expression)]


def test_promtool_accepts_the_rules() -> None:
    output = promtool("check", "rules", RULES_FILE)

    assert f"{len(RULES)} rules found" in output


def test_each_alert_fires_and_is_silent_in_promtool_as_in_its_cases() -> None:
    assert "SUCCESS" in promtool("test", "rules", CASES_FILE)


def test_every_alert_has_a_case_in_which_it_fires() -> None:
    fires = {
        case["alertname"]
        for test in yaml.safe_load(CASES_FILE.read_text())["tests"]
        for case in test["alert_rule_test"]
        if case["exp_alerts"]
    }

    assert set(RULES) == fires


@pytest.mark.parametrize("name", RULES)
def test_alert_has_a_runbook(name: str) -> None:
    file, anchor = RULES[name]["annotations"]["runbook"].split("#")
    [text] = re.findall(rf"^#### {name}\n\n(.+?)(?=^#|\Z)", RUNBOOKS, re.DOTALL | re.MULTILINE)

    assert ("docs/runbooks.md", name.lower()) == (file, anchor)  # the anchor of the heading
    assert len(text.split()) >= 20


def test_every_paragraph_is_of_an_alert() -> None:
    assert set(RULES) == set(re.findall(r"^#### (Streamjoin\w+)$", RUNBOOKS, re.MULTILINE))


def promtool(*words: str | Path) -> str:
    process = subprocess.run(
        [program("promtool", package="prometheus"), *words],
        capture_output=True,
        text=True,
        check=False,
    )
    assert 0 == process.returncode, process.stdout + process.stderr
    return process.stdout
