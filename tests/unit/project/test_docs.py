"""The files, commands, settings and fields in the documentation exist."""

import json
import re
from importlib.util import find_spec
from itertools import dropwhile, pairwise
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml
from typer.testing import CliRunner

from deploy.local.kafka_tools import MAIN_CLASSES
from job.__main__ import app
from job.plan.capacity import AvailableResources
from job.plan.explain import explained
from job.plan.planner import join_plan
from job.settings import JobSettings
from job.spec.reference import field_tables, with_tables
from job.spec.spec import spec_from_yaml
from service.settings import ServiceSettings
from tests.sql_worker import SQL
from tests.unit.delivery.interval_bugs import (
    DRIVER_BUGS,
    FENCE_BUGS,
    LOOP_BUGS,
    MATCH_BUGS,
    PROTOCOL_BUGS,
)
from tests.unit.join.test_kept_states import KEPT_BUGS
from tests.unit.service.metrics.scrape import NAMES

ROOT = Path(__file__).parents[3]
README = (ROOT / "README.md").read_text()
PLANTED_BUGS = ROOT / "docs/contributing/planted-bugs.md"
PAGES = sorted((ROOT / "docs").rglob("*.md"))
# The README first: its spec is complete.
GUIDE = "\n".join([README, *(page.read_text() for page in PAGES)])
NAMED = ("README.md", "ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md")
DOCUMENTS = [*(ROOT / name for name in NAMED), *PAGES]
BLOCKS = re.findall(r"```(\w+)\n(.*?)```", GUIDE, re.DOTALL)
SHELL = [
    line.split("#")[0].split()
    for kind, body in BLOCKS
    if kind == "sh"
    for line in body.splitlines()
]


def names_of(typer_app: typer.Typer | None) -> set[str]:
    assert typer_app is not None
    return {
        command.name or command.callback.__name__
        for command in typer_app.registered_commands
        if command.callback
    }


@pytest.mark.parametrize("words", [words for words in SHELL if words], ids=" ".join)
def test_command_of_the_readme_exists(words: list[str]) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    commands = names_of(app)
    groups = {group.name: names_of(group.typer_instance) for group in app.registered_groups}
    # Variables before a command: NAME=value streamjoin run …
    words = list(dropwhile(lambda word: re.match(r"[A-Z_]+=", word), words))
    match words:
        case ["make", target, *_]:
            assert target in targets
        case [".venv/bin/streamjoin" | "streamjoin", group, command, *_] if group in groups:
            assert command in groups[group]
        case [".venv/bin/streamjoin" | "streamjoin", command, *_]:
            assert command.replace("-", "_") in commands
        case ["uvx", "--from", "'streamjoin[job]'", "streamjoin", command, *_]:
            assert command in commands
        case ["pip" | "pipx", "install", "'streamjoin[job]'"]:
            pass
        case [".venv/bin/python", "-m", "deploy.local.kafka_tools", tool, *_]:
            assert tool in MAIN_CLASSES
        case [".venv/bin/python", "-m", module, *_]:
            assert find_spec(module)
        case [".venv/bin/streamjoin-service" | "streamjoin-service" | "curl", *_]:
            pass
        case ["docker", "compose", *options]:
            files = [file for flag, file in pairwise(options) if flag == "-f"]
            assert all((ROOT / file).exists() for file in files)
        case ["mkdir" | "export" | ".venv/bin/spark-class", *_]:
            pass
        case ["kubectl", "apply", "-k", folder]:
            assert (ROOT / folder / "kustomization.yaml").exists()
        case ["helm", "install", _, folder, "--set-file", value]:
            assert (ROOT / folder / "Chart.yaml").exists()
            assert value.startswith("spec=")
        case ["helm", "install", _, folder, "--values", values, "--set", value]:
            assert (ROOT / folder / "Chart.yaml").exists()
            assert (ROOT / values).exists()
            assert value.startswith("service.tlsSecret=")
        case ["kubectl", "create", "secret", "generic" | "tls", name, *_]:
            files = ("k8s/deployment.yaml", "helm/examples/kafka-tls.yaml")
            files += ("helm/examples/prometheus.yaml",)
            assert any(name in (ROOT / "deploy" / file).read_text() for file in files)
        case _:
            raise AssertionError(f"unknown command: {words}")


SPECS = [yaml.safe_load(body) for kind, body in BLOCKS if kind == "yaml"]


@pytest.mark.parametrize("part", SPECS)
def test_spec_of_the_readme_can_be_planned(part: dict[str, Any]) -> None:
    """The first one is complete; a later part replaces fields of it."""
    whole = yaml.safe_dump(part if "name" in part else {**SPECS[0], **part})
    join_plan(spec_from_yaml(whole, {}), SQL, state_partitions=1)


@pytest.mark.parametrize(
    "command", [pytest.param("validate", marks=pytest.mark.starts_sql_worker), "plan"]
)
def test_example_is_valid_and_planned_by_the_commands(command: str) -> None:
    result = CliRunner().invoke(app, [command, str(ROOT / "join.example.yaml")])
    assert 0 == result.exit_code, result.output


def test_estimate_of_the_readme_is_that_of_the_example() -> None:
    spec = spec_from_yaml((ROOT / "join.example.yaml").read_text(), {})
    resources = AvailableResources(cores=2, heap_bytes=2 * 2**30, disk_free_bytes=None)
    [estimate] = re.findall(r"```\n(Expected load\n.*?)```", GUIDE, re.DOTALL)

    assert estimate in explained(join_plan(spec, SQL, state_partitions=2), resources)


@pytest.mark.starts_sql_worker
def test_example_passes_its_own_tests() -> None:
    result = CliRunner().invoke(app, ["test", str(ROOT / "join.example.yaml")])

    assert 0 == result.exit_code, result.output
    assert 2 == result.output.count("passed: ")


def test_test_that_fails_ends_with_1_and_shows_the_rows(tmp_path: Path) -> None:
    spec = tmp_path / "join.yaml"
    spec.write_text((ROOT / "join.example.yaml").read_text().replace("user: null}]", "user: x}]"))
    result = CliRunner().invoke(app, ["test", str(spec)])

    assert 1 == result.exit_code
    assert "FAILED: a click of a bot does not match" in result.output
    assert "missing: {'ad_id': 1, 'user': 'x'}" in result.output


def test_simulation_prints_only_the_output_values_with_format_jsonl(tmp_path: Path) -> None:
    (tmp_path / "l").write_text(
        '{"ad_id":1,"shown_at":"2026-01-01T00:00:00Z","campaign":"c","cost":1.0}\nno json\n'
    )
    (tmp_path / "r").write_text('{"ad_id":1,"clicked_at":"2026-01-01T00:10:00Z","user":"ann"}\n')
    files = ["--left", str(tmp_path / "l"), "--right", str(tmp_path / "r")]
    spec = str(ROOT / "join.example.yaml")

    lines = CliRunner().invoke(app, ["simulate", spec, *files, "--format", "jsonl"]).output
    trace = CliRunner().invoke(app, ["simulate", spec, *files, "--explain", "1"]).output
    output = CliRunner().invoke(app, ["simulate", spec, *files]).output

    assert {"ad_id": 1, "user": "ann"}.items() <= json.loads(lines).items()
    assert "matched right clicks/0/0" in trace
    assert "1 dropped, malformed_json (0/1)" in output


def test_tutorial_simulates_to_the_results_it_prints(tmp_path: Path) -> None:
    page = (ROOT / "docs/tutorial.md").read_text()
    spec, _ = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
    *_, orders, payments, expected = re.findall(r"```json\n(.*?)```", page, re.DOTALL)
    for name, text in (("s", spec), ("l", orders), ("r", payments)):
        (tmp_path / name).write_text(text)
    files = ["--left", str(tmp_path / "l"), "--right", str(tmp_path / "r")]

    result = CliRunner().invoke(app, ["simulate", str(tmp_path / "s"), *files, "--format", "jsonl"])

    assert expected == result.output


def test_plan_for_programs_is_json() -> None:
    result = CliRunner().invoke(app, ["plan", str(ROOT / "join.example.yaml"), "--json"])

    assert "left_outer" == json.loads(result.output)["join_type"]


def test_wrong_spec_ends_with_2_and_each_problem_on_a_line(tmp_path: Path) -> None:
    spec = tmp_path / "wrong.yaml"
    spec.write_text("name: X\nkafka: {}\n")
    result = CliRunner().invoke(app, ["validate", str(spec)])

    assert 2 == result.exit_code
    assert "  name: must begin with a letter" in result.stderr
    assert "  kafka.bootstrap_servers: is required" in result.stderr


def test_metrics_of_the_documents_are_exported() -> None:
    for document in DOCUMENTS:
        if document.name == "CHANGELOG.md":  # it also has the former names of renamed metrics
            continue
        named = set(re.findall(r"streamjoin_[a-z_]*[a-z]", document.read_text()))
        assert set() == named - NAMES


def test_every_metric_is_documented() -> None:
    assert set() == NAMES - set(re.findall(r"streamjoin_[a-z_]*[a-z]", GUIDE))


def test_all_settings_are_documented_and_documented_settings_exist() -> None:
    known = {
        f"STREAMJOIN_{name.upper()}"
        for settings in (JobSettings, ServiceSettings)
        for name in settings.model_fields
    }
    named = set(re.findall(r"STREAMJOIN_[A-Z_]*[A-Z]", GUIDE))
    compose = (ROOT / "docker-compose.yml").read_text()

    assert set() == named - known - set(re.findall(r"\$\{(STREAMJOIN_[A-Z_]+)", compose))
    assert set() == known - named


def test_files_that_documents_name_exist() -> None:
    for document in DOCUMENTS:
        for target in re.findall(r"\]\(([^)#:]+)\)", document.read_text()):
            assert (document.parent / target).exists(), f"{document.name} names {target}"


def test_tests_that_the_tables_name_exist() -> None:
    for table in (
        ROOT / "docs/contributing/inputs-and-outputs.md",
        ROOT / "docs/contributing/table-promises.md",
        PLANTED_BUGS,
        ROOT / "tests/faults/README.md",
    ):
        named = re.findall(r"`([\w./]+\.py)::(test_\w+)`", table.read_text())
        assert len(named) > 20
        for file, test in named:
            path = ROOT / file if file.startswith("tests/") else table.parent / file
            assert f"\ndef {test}(" in path.read_text(), f"{file}::{test}"


def test_each_bug_that_a_test_plants_is_in_the_table() -> None:
    sources = ("test_real_time_join.py", "test_transaction_writer.py")
    text = "".join((ROOT / "tests/semantics" / name).read_text() for name in sources)
    in_java = {name.replace("_", " ") for name in re.findall(r'^    "(\w+)": Plant', text, re.M)}
    assert len(in_java) > 10
    listed = re.findall(r"^\| (.+?) \|", PLANTED_BUGS.read_text(), re.MULTILINE)

    assert set() == {
        *in_java,
        *PROTOCOL_BUGS,
        *FENCE_BUGS,
        *LOOP_BUGS,
        *MATCH_BUGS,
        *DRIVER_BUGS,
        *KEPT_BUGS,
    } - {*listed}


def test_tables_of_the_spec_page_are_those_of_the_models() -> None:
    page = (ROOT / "docs/spec.md").read_text()

    assert field_tables() in page
    assert with_tables(page) == page, "run: python -m job.spec.reference docs/spec.md"


def test_readme_is_short_enough_to_be_read() -> None:
    assert len(README.splitlines()) <= 180


def test_every_page_is_in_the_navigation() -> None:
    listed = re.findall(r"(\S+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE)

    assert sorted(str(page.relative_to(ROOT / "docs")) for page in PAGES) == sorted(listed)


def test_architecture_is_short_enough_to_be_read() -> None:
    assert len((ROOT / "ARCHITECTURE.md").read_text().splitlines()) <= 150
