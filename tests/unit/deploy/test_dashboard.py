"""The Grafana dashboard: each panel uses existing metrics, and the file can be imported."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.unit.deploy.promql import mistakes, names
from tests.unit.service.metrics.scrape import NAMES

ROOT = Path(__file__).parents[3]
DASHBOARD = json.loads((ROOT / "deploy/grafana/streamjoin.json").read_text())
PANELS = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
# Grafana's variables, each with a value that the parser accepts.
FILLED = {"$__rate_interval": "1m", "$instance": ".*"}
# Not useful over time: the version, and timestamps that other metrics contain.
NOT_SHOWN = {
    "streamjoin_batches_total",
    "streamjoin_brokers_answer_timestamp_seconds",
    "streamjoin_build_info",
    "streamjoin_last_batch_input_records",
    "streamjoin_last_batch_output_records",
    "streamjoin_state_count_duration_seconds",
    "streamjoin_state_count_timestamp_seconds",
    "streamjoin_watermark_timestamp_seconds",
}


def expressions() -> Iterator[tuple[dict[str, Any], str]]:
    for panel in PANELS:
        for target in panel["targets"]:
            expression = target["expr"]
            for variable, value in FILLED.items():
                expression = expression.replace(variable, value)
            yield panel, expression


@pytest.mark.parametrize(
    "expression", [pytest.param(it, id=panel["title"]) for panel, it in expressions()]
)
def test_panel_queries_only_exposed_metrics(expression: str) -> None:
    assert [] == [*mistakes(expression)]
    assert 'instance=~".*"' in expression, "the choice of instances has no effect"


def test_every_metric_is_on_a_panel() -> None:
    shown = set().union(*(names(expression) for _, expression in expressions()))
    shown = {name.removesuffix("_bucket") for name in shown}

    assert NAMES - NOT_SHOWN == shown


def test_datasource_is_a_variable_everywhere() -> None:
    variables = {variable["name"]: variable for variable in DASHBOARD["templating"]["list"]}
    parts = [*PANELS, *(target for panel in PANELS for target in panel["targets"])]

    assert ("datasource", "prometheus") == (
        variables["datasource"]["type"],
        variables["datasource"]["query"],
    )
    assert {"${datasource}"} == {part["datasource"]["uid"] for part in parts}
    assert "label_values(streamjoin_job_up, instance)" == variables["instance"]["definition"]


def test_panels_stand_side_by_side_and_never_upon_each_other() -> None:
    taken: dict[tuple[int, int], str] = {}
    for panel in DASHBOARD["panels"]:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24, panel["title"]
        for x in range(place["x"], place["x"] + place["w"]):
            for y in range(place["y"], place["y"] + place["h"]):
                assert taken.setdefault((x, y), panel["title"]) is panel["title"]


def test_every_panel_has_a_number_a_title_a_unit_and_a_word_of_explanation() -> None:
    numbers = [panel["id"] for panel in DASHBOARD["panels"]]

    assert len(numbers) == len(set(numbers))
    for panel in PANELS:
        assert panel["title"]
        assert panel["description"].endswith(".")
        assert panel["fieldConfig"]["defaults"]["unit"]
