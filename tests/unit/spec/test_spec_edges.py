"""Specs at the edge: YAML's traps, bounds, unreadable names, and passwords in wrong places."""

import json
import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from job.__main__ import app
from job.errors import SpecError
from job.plan.planner import join_plan
from job.plan.validation import ValidationRequest, validated
from job.spec.spec import spec_from_yaml
from tests.sql_worker import SQL
from tests.unit.specs import BASE, spec_yaml

SECRET = "hunter2-PLANTED"
VALID = spec_yaml()


def problems(text: str, environment: dict[str, str] | None = None) -> str:
    with pytest.raises(SpecError) as refused:
        join_plan(spec_from_yaml(text, environment or {}), SQL, state_partitions=2)
    return str(refused.value)


def bomb(levels: int) -> str:
    """YAML of 50 bytes per level that expands to 10 ** levels values."""
    lines = ["a0: &a0 [" + ", ".join("x" * 10) + "]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, levels)]
    return "\n".join(lines)


# --- Bounds


@pytest.mark.parametrize("levels", [6, 9, 40])
def test_yaml_bomb_is_refused_before_it_is_expanded(levels: int) -> None:
    began = time.process_time()

    assert "expands to more than 100,000 values" in problems(bomb(levels))
    assert time.process_time() - began < 1.0


def test_bomb_of_merge_keys_is_refused() -> None:
    lines = ["a0: &a0 {k: 1}"]
    lines += [f"a{n}: &a{n} {{<<: [{', '.join([f'*a{n - 1}'] * 10)}]}}" for n in range(1, 9)]

    assert "expands to more than 100,000 values" in problems("\n".join(lines))


def test_tests_of_a_thousand_rows_are_within_the_bounds() -> None:
    rows = [{"ad_id": n, "cost": 1.5, "campaign": "c"} for n in range(1_000)]
    tests = [{"name": "many", "left": rows, "right": rows, "output": rows}]

    assert 1_000 == len(spec_from_yaml(spec_yaml(tests=tests), {}).tests[0].left)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: " + "[" * 300 + "]" * 300, "is nested more than 50 deep"),
        ("a: " + "{b: " * 300 + "}" * 300, "is nested more than 50 deep"),
        ("a: &a [*a]", "contains an alias to itself"),
        ("a: &a {b: *a}", "contains an alias to itself"),
        ("? [a, b]\n: 1", "a list or mapping is used as the name of a field"),
        ("? {a: b}\n: 1", "a list or mapping is used as the name of a field"),
        ("a: !!int abc", "is not an integer"),
        ('a: !!int ""', "is not an integer"),
        ("a: !!bool maybe", "is not true or false"),
        ("a: !!float x", "is not a number"),
        ("a: !!timestamp abc", "has a YAML tag (!!timestamp)"),
        ("a: !!binary aGk=", "has a YAML tag (!!binary)"),
        ("a: !!set {b}", "has a YAML tag (!!set)"),
        ("a: !!str [b]", "has a YAML tag (!!str)"),
        ("a: !!map b", "has a YAML tag (!!map)"),
        ("a: " + "9" * 5_000, "is not an integer of at most 77 digits"),
        ("a: 0x" + "f" * 5_000, "is not an integer of at most 77 digits"),
        ("a: =", "has a YAML tag (!!value)"),
        ("left: {<<: text}", "expected a mapping or list of mappings for merging"),
    ],
)
def test_yaml_that_a_spec_does_not_support_is_refused_with_its_line(
    text: str, message: str
) -> None:
    refused = problems(text)

    assert message in refused
    assert refused.startswith("line 1, column ")


@pytest.mark.parametrize("name", ["off", "no", "on", "Yes", "true"])
def test_boolean_as_a_name_is_explained(name: str) -> None:
    text = VALID.replace("    cost: left.cost", f"    {name}: left.cost")

    assert f"the name {name} is a boolean in YAML 1.1, as are on, off, yes" in problems(text)


def test_boolean_in_place_of_text_is_explained() -> None:
    refused = problems(VALID.replace("  - ad_id", "  - on", 1))

    assert "key[0]: is a boolean and must be text: YAML 1.1 reads on, off" in refused


@pytest.mark.parametrize("name", ["1", "1.5", "~", "null"])
def test_name_must_be_text(name: str) -> None:
    text = VALID.replace("    cost: left.cost", f"    {name}: left.cost")

    assert "write" in problems(text) or "must be text" in problems(text)


def test_merge_keys_share_the_settings_of_both_sides() -> None:
    document = yaml.safe_load(VALID)
    for side in ("left", "right"):
        del document[side]["key"], document[side]["watermark_delay"]
    text = yaml.safe_dump(document).replace("left:\n", "left: &side\n  key: [ad_id]\n")
    text = text.replace("left: &side\n", "left: &side\n  watermark_delay: 5 seconds\n", 1)
    text = text.replace("right:\n", "right:\n  <<: *side\n")

    spec = spec_from_yaml(text, {})
    assert ["ad_id"] == spec.right.key
    assert spec.left.watermark_delay == spec.right.watermark_delay
    assert ("clicks", "clicked_at") == (spec.right.topic, spec.right.event_time)


def test_name_twice_is_refused_next_to_a_merge_key() -> None:
    assert "'k' is written twice" in problems("a: &a {k: 1}\nb: {<<: *a, k: 1, k: 2}")


def test_at_most_150_problems_are_listed() -> None:
    refused = problems(spec_yaml(**{f"x{n}": n for n in range(500)}))

    assert 151 == len(refused.splitlines())
    assert refused.endswith("the file: has 350 more problems, which are not listed")


# --- Values


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"start_from": "0001-01-01T00:00:00+18:00"}, "must be earliest, latest or a time"),
        ({"left__watermark_delay": "1" * 5_000 + " days"}, "is longer than 100,000,000 days"),
        ({"left__expected_rate": True}, "must be a number"),
        ({"left__expected_rate": 1e308}, "must be at most 1,000,000,000 records per second"),
        ({"left__topic": "__consumer_offsets"}, "is an internal topic of Kafka"),
        ({"output__topic": "__transaction_state"}, "is an internal topic of Kafka"),
        ({"kafka__bootstrap_servers": "a:1,b:0"}, "entry 2 has a port that is not between"),
        ({"kafka__bootstrap_servers": "a:99999"}, "entry 1 has a port that is not between"),
        ({"checkpoint": "/proc/x"}, "is below /proc, where no files can be stored"),
        ({"checkpoint": "file:///sys"}, "is below /sys, where no files can be stored"),
        ({"checkpoint": "foo://x/y"}, "has a scheme that Hadoop does not support"),
        ({"checkpoint": "/data/a\x00b"}, "contains a control character"),
        ({"output__columns": {"": "left.cost"}}, "must not be empty"),
        ({"output__columns": {"a\x00": "left.cost"}}, "control characters"),
        ({"output__columns": {"a\nb": "left.cost"}}, "control characters"),
        ({"output__columns": {"\u202egpj": "left.cost"}}, "control characters"),
        ({"tests": [{"name": "a", "lefft": []}]}, "tests[0].lefft: unknown field"),
        ({"left__schema": "MAP ( a INT"}, "left.schema: is not Spark DDL"),
        ({"left__schema": "ad-id INT"}, "put a name with a dash in backquotes, e.g. `order-id`"),
        ({"left__schema": "a " + "STRUCT<a: " * 200 + "INT" + ">" * 200}, "left.schema: "),
        ({"left__schema": "a " + "ARRAY<" * 500 + "INT" + ">" * 500}, "left.schema: "),
        ({"left__filter": "cost > . 1.5BD"}, "left.filter: has a syntax error at"),
        ({"left__filter": "(" * 5_000 + "1" + ")" * 5_000}, "left.filter: "),
    ],
)
def test_value_that_cannot_be_used_is_refused(changes: dict[str, Any], message: str) -> None:
    assert message in problems(spec_yaml(**changes))


@pytest.mark.parametrize(
    "changes",
    [
        {"output__columns": {"größe in cm": "left.cost", "价格": "left.cost"}},
        {"left__topic": "__own"},
        {"kafka__bootstrap_servers": "a:1, [::1]:65535"},
        {"checkpoint": "/data/proc/x?#"},
        {"checkpoint": "abfss://container@account.dfs.core.windows.net/x"},
        {"checkpoint": "procedure/x"},
        {"left__expected_rate": 1e9},
    ],
)
def test_similar_valid_value_is_accepted(changes: dict[str, Any]) -> None:
    join_plan(spec_from_yaml(spec_yaml(**changes), {}), SQL, state_partitions=2)


# --- Passwords in wrong places

PLANTED: list[dict[str, Any]] = [
    {"kafka__password": SECRET},
    {"kafka__sasl": {"password": SECRET}},
    {"kafka__sasl": [SECRET]},
    {"kafka__sasl_jaas_config": f"org.apache.Plain required password='{SECRET}';"},
    {"kafka__ssl_key": f"-----BEGIN PRIVATE KEY-----\n{SECRET}"},
    {"kafka__schema_registry": f"http://u:{SECRET}@h"},
    {"kafka__bootstrap_servers": f"SASL_SSL://u:{SECRET}"},
    {"kafka__bootstrap_servers": f"u:{SECRET}@h:9092"},
    {"kafka__bootstrap_servers": [SECRET]},
    {"kafka": [SECRET]},
    {"kafka": SECRET},
    {"kafka__security": SECRET},
    {"kafka__security": [SECRET]},
    {"kafka__security": {"protocol": SECRET}},
    {"kafka__security": {"protocol": "SASL_SSL", "mechanism": SECRET}},
    {"kafka__security": {"protocol": "SSL", "passwort": SECRET}},
    {"kafka__security": {"protocol": "SSL", "password": SECRET, "username": SECRET}},
    {"kafka__security": {"protocol": "SASL_SSL", "mechanism": "PLAIN", "password": [SECRET]}},
    {"kafka__security": {"protocol": "SASL_SSL", "token_endpoint": f"https://u:{SECRET}@h"}},
    {"password": SECRET},
    {"left__password": SECRET},
    {"output__api_key": {"value": SECRET}},
    {"schemaregistry": f"http://u:{SECRET}@h"},
    {"schema_registry": SECRET},
    {"schema_registry": {"url": f"http://u:{SECRET}@h"}},
    {"schema_registry": {"url": "http://h", "passwort": SECRET}},
    {"checkpoint": f"s3a://id:{SECRET}@bucket/x"},
    {"checkpoint": f"s3a://{SECRET}@bucket/x"},
    {"checkpoint": f"abfss://c@account/x?sig={SECRET}"},
    {"output__topic": f"https://u:{SECRET}@h"},
    {"tests": [{"name": "a", "password": SECRET}]},
]


@pytest.mark.parametrize("changes", PLANTED, ids=lambda changes: next(iter(changes)))
def test_password_in_a_wrong_place_is_not_shown(changes: dict[str, Any], tmp_path: Path) -> None:
    spec = tmp_path / "join.yaml"
    spec.write_text(spec_yaml(**changes))
    for command in (["validate"], ["plan"], ["plan", "--json"], ["run"]):
        done = CliRunner().invoke(app, [command[0], str(spec), *command[1:]])

        assert 2 == done.exit_code, done.output
        assert SECRET not in done.output
    answer = validated(
        ValidationRequest(spec=spec.read_text(), state_partitions=2, frozen=None), SQL
    )
    assert answer.problems
    assert SECRET not in answer.model_dump_json()


@pytest.mark.parametrize("text", [f"password: *{SECRET}", f"a: !{SECRET} x", f"a: !{SECRET}!b x"])
def test_password_that_yaml_parses_as_syntax_is_not_shown(text: str) -> None:
    assert SECRET not in problems(text)


@pytest.mark.parametrize(
    "changes",
    [
        {"left__topic": "${PW} x"},
        {"left__watermark_delay": "10 ${PW}"},
        {"left__filter": "cost > ${PW}"},
        {"left__filter": "'${PW}' = camp"},
        {"left__schema": "ad_id BIGINT, ${PW} x, shown_at TIMESTAMP"},
        {"left__key": ["${PW}"]},
        {"join__condition": "left.${PW} = 1"},
        {"join__type": "${PW}"},
        {"output__columns": {"a": "left.cost", "b": "${PW}"}},
        {"output__topic": "${PW}", "left__topic": "${PW}"},
        {"name": "${PW}"},
        {"name": "${PW2:-" + SECRET + "}"},
        {"left": "${PW}"},
        {"start_from": "${PW}"},
    ],
    ids=str,
)
def test_value_of_a_variable_is_not_shown(
    changes: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PW", SECRET)
    spec = tmp_path / "join.yaml"
    spec.write_text(spec_yaml(**changes))
    done = CliRunner().invoke(app, ["validate", str(spec)])

    assert 2 == done.exit_code, done.output
    assert "hunter2" not in done.output
    assert "PLANTED" not in done.output


def test_wrong_value_of_a_variable_is_shown_by_the_variable_s_name() -> None:
    text = spec_yaml(left__watermark_delay="${DELAY}")

    assert (
        "left.watermark_delay: has an unknown unit '${DELAY}': write a number with a unit, e.g. "
        '"10 seconds", "1 hour 30 minutes" or "500 milliseconds" (written: ${DELAY})'
    ) == problems(text, {"DELAY": "10 parsecs"})


# --- The command line


@pytest.mark.parametrize("encoding", ["latin-1", "utf-16"])
def test_file_that_is_not_utf_8_is_refused(encoding: str, tmp_path: Path) -> None:
    spec = tmp_path / "join.yaml"
    spec.write_bytes(f"# größe\n{VALID}".encode(encoding))
    done = CliRunner().invoke(app, ["validate", str(spec)])

    assert 2 == done.exit_code
    assert "is not text in UTF-8" in done.stderr
    assert "Traceback" not in done.output


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("STATE_PARTITIONS", "abc"),
        ("STATE_PARTITIONS", "0"),
        ("STATE_PARTITIONS", "99999999999999"),
        ("GRACE_SECONDS", "-1"),
        ("GRACE_SECONDS", "nan"),
        ("CHECKPOINT_IS_SHARED", "maybe"),
    ],
)
@pytest.mark.parametrize("command", ["validate", "plan", "run", "test"])
def test_setting_that_cannot_be_used_is_named(
    command: str, variable: str, value: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(f"STREAMJOIN_{variable}", value)
    spec = tmp_path / "join.yaml"
    spec.write_text(spec_yaml(tests=[{"name": "a"}]))
    done = CliRunner().invoke(app, [command, str(spec)])

    assert 1 == done.exit_code
    assert isinstance(done.exception, SystemExit)
    assert f"STREAMJOIN_{variable}: " in done.stderr
    assert f"(written: {value})" in done.stderr


def test_plan_for_programs_is_json_at_the_highest_rate(tmp_path: Path) -> None:
    spec = tmp_path / "join.yaml"
    spec.write_text(spec_yaml(left__expected_rate=1e9, right__expected_rate=1e9))
    done = CliRunner().invoke(app, ["plan", str(spec), "--json"])

    def refuse(constant: str) -> None:
        raise AssertionError(constant)

    assert BASE["name"] == json.loads(done.output, parse_constant=refuse)["name"]
