"""No problem of a spec hides another one that does not follow from it."""

from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from pydantic import BaseModel

from job.errors import SpecError
from job.plan.planner import join_plan
from job.plan.validation import ValidationRequest, validated
from job.spec.spec import JoinSpec, spec_from_yaml
from job.spec.text import fields_of, model_in
from tests.sql_worker import SQL
from tests.unit.specs import changed, spec_yaml

# Not a value of any field.
INVALID = {"no field": [[]]}
# Only a field that contains an expression has this length.
IS_EXPRESSION = "max_length=10000"


def problems(text: str) -> dict[str, list[str]]:
    """Messages by field."""
    with pytest.raises(SpecError) as refused:
        join_plan(spec_from_yaml(text, {}), SQL, state_partitions=2)
    messages: dict[str, list[str]] = {}
    for problem in refused.value.problems:
        messages.setdefault(problem.field, []).append(problem.message)
    return messages


def leaves(model: type[BaseModel], *path: str) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Path and description of each field that is no model itself."""
    for name, field in fields_of(model).items():
        inner = model_in(field.annotation)
        if inner is None or "list[" in str(field.annotation) or "Duration" in str(field):
            yield (*path, name), field
        else:
            yield from leaves(inner, *path, name)


def nested(values: dict[tuple[str, ...], Any]) -> dict[str, Any]:
    document: dict[str, Any] = {}
    for (*path, name), value in values.items():
        target = document
        for part in path:
            target = target.setdefault(part, {})
        target[name] = value
    return document


def test_invalid_value_in_every_field_is_reported_for_each() -> None:
    paths = [path for path, _ in leaves(JoinSpec)]
    reported = problems(yaml.safe_dump(nested(dict.fromkeys(paths, INVALID))))

    assert len(paths) > 60
    for path in paths:
        field = ".".join(path)
        assert any(f"{name}.".startswith(f"{field}.") for name in reported), field


def test_invalid_expression_in_every_field_is_reported_for_each() -> None:
    document = yaml.safe_load(spec_yaml())
    expected = {"left.event_time", "right.event_time"}
    for (*path, name), description in leaves(JoinSpec):
        if IS_EXPRESSION not in repr(description):
            continue
        field, kind = ".".join((*path, name)), repr(description.annotation)
        target = document
        for part in path:
            target = target.setdefault(part, {})
        if "dict[" in kind:
            target[name], field = {"x": "nope"}, f"{field}.x"
        elif "list[" in kind:
            target[name], field = ["nope"], f"{field}[0]"
        else:
            target[name] = "nope"
        expected.add(field)
    # A table has other expressions than a stream.
    table = {**document["right"], "event_time": "nope"}
    for side in ("left", "right"):
        del document[side]["table"]
        document[side]["event_time"] = "nope"
        document[side]["deduplicate"]["within"] = "1 hour"

    assert len(expected) > 12
    of_tables = {"left.table.delete", "right.table.delete"}
    assert expected - of_tables == set(problems(yaml.safe_dump(document)))
    del table["deduplicate"]
    table["table"]["version"] = "latest"
    join = {"type": "inner"}
    assert "right.table.delete" in problems(
        yaml.safe_dump({**document, "right": table, "join": join})
    )


def test_every_contradiction_is_reported() -> None:
    reported = problems(
        spec_yaml(
            dead_letter={"topic": "attributed"},
            real_time={"checkpoint_interval": "1 minute"},
            left__topics=["impressions"],
            left__subject="s",
            right__key=["ad_id", "user"],
            output__topic="clicks",
            output__subject="s",
            output__key_format="json",
            output__timestamp="event_time",
            join__window="1 hour",
            join__match_window={"before": "-1 hour", "after": "1 second"},
            kafka__security={"protocol": "PLAINTEXT", "ca_file": "ca.pem", "username": "u"},
            schema_registry={"url": "http://registry:8081", "ca_file": "ca.pem", "password": "p"},
        )
    )

    # the file: dead_letter and on_bad_record, real_time, registry, and keys
    assert {
        "kafka.security": 2, "schema_registry": 3, "left": 2, "join.match_window": 1, "join": 1,
        "output": 3, "output.topic": 1, "the file": 4,
    } == {field: len(set(messages)) for field, messages in reported.items()}  # fmt: skip

    reported = problems(
        spec_yaml(
            dead_letter={"topic": "clicks"},
            real_time={"checkpoint_interval": "1 minute"},
            schema_registry={"url": "http://localhost:8081"},
            right__key=["ad_id", "user"],
            output__topic="impressions",
            output__commit_topic="clicks",
        )
    )
    # the file: dead_letter and on_bad_record, real_time, registry, and keys
    topics = {"dead_letter.topic", "output.topic", "output.commit_topic"}
    assert {*topics, "the file"} == set(reported)
    assert 4 == len(set(reported["the file"]))


def all_problems(**changes: Any) -> dict[str, str]:
    request = ValidationRequest(spec=spec_yaml(**changes), state_partitions=2, frozen=None)
    return {each.field: each.message for each in validated(request, SQL).problems}


def test_invalid_structure_does_not_hide_invalid_sql() -> None:
    reported = all_problems(
        kafka={"bootstrap_servers": ""},
        join__type="outer",
        left__watermark_delay="nope",
        left__filter="nope > 1",
        left__unknown=1,
        right__key=["nope"],
        output__columns={"a": "left.nope"},
        on_bad_record="ignore",
    )

    assert {
        "kafka.bootstrap_servers", "join.type", "left.watermark_delay", "left.filter",
        "left.unknown", "right.key[0]", "output.columns.a", "on_bad_record",
    } == set(reported)  # fmt: skip


@pytest.mark.parametrize(
    "contradiction",
    [
        {"dead_letter": {"topic": "dead"}},
        {"join": {"type": "inner", "window": "5 minutes", "match_window": "1 minute"}},
    ],
    ids=["of the file", "of the join"],
)
def test_contradiction_does_not_hide_invalid_sql(contradiction: dict[str, Any]) -> None:
    changes = {"left__filter": "nope > 1", **contradiction, "join__condition": "left.no = 1"}

    assert {"left.filter", "join.condition"} < set(all_problems(**changes))


def test_sql_is_not_checked_against_an_invalid_schema_or_missing_columns() -> None:
    assert {"left.schema", "join.type"} == set(
        all_problems(left__schema=7, join__type="outer", left__filter="nope > 1")
    )
    assert {"output.column"} == set(
        all_problems(
            output__columns=None, output__column={"a": "left.cost"}, output__filter="a > 1"
        )
    )


def test_missing_output_columns_do_not_hide_an_invalid_filter() -> None:
    reported = all_problems(output__columns=None, output__filter="left.nope > 1")

    assert {"output.columns", "output.filter"} == set(reported)
    # The names of output columns are not known.
    assert {"output.columns"} == set(all_problems(output__columns=None, output__filter="a > 1"))


def test_contradictions_of_all_levels_are_reported_with_invalid_fields() -> None:
    reported = problems(
        spec_yaml(
            left__watermark_delay="nope",
            right__subject="s",
            join__window="5 minutes",
            join__match_window={"before": "-1 hour", "after": "1 second"},
        )
    )

    assert {"left.watermark_delay": 1, "right": 1, "join.match_window": 1, "join": 1} == {
        field: len(messages) for field, messages in reported.items()
    }


def test_contradiction_of_output_does_not_hide_the_missing_handling_of_bad_records() -> None:
    reported = problems(
        spec_yaml(output__timestamp="event_time", on_late_row="dead_letter", on_bad_record=None)
    )

    assert {"output": 1, "the file": 2} == {
        field: len(messages) for field, messages in reported.items()
    }


def test_invalid_schema_of_one_side_does_not_hide_the_other_side_and_the_join() -> None:
    text = spec_yaml(
        left__schema="ad_id NOSUCH",
        right__filter="nope > 1",
        right__event_time="nope",
        join__match_window=None,
        join__null_safe=[True, False],
    )

    assert {
        "left.schema", "right.filter", "right.event_time", "join", "join.null_safe",
    } == set(problems(text))  # fmt: skip


def test_invalid_event_time_does_not_hide_keys_of_different_types() -> None:
    text = spec_yaml(left__event_time="nope", right__key=["user"])

    assert {"left.event_time", "right.key[0]"} == set(problems(text))


def test_invalid_output_column_hides_only_the_expressions_over_it() -> None:
    text = changed(
        spec_yaml(),
        output__columns={"a": "left.nope", "b": "left.cost"},
        output__filter="missing > 1",
        output__key="upper(A)",
        output__headers={"h": "b", "i": "a", "j": "a_b", "k": "`a`"},
    )

    assert {"output.columns.a", "output.filter", "output.headers.j"} == set(problems(text))


def test_invalid_output_column_does_not_hide_an_expression_over_a_column_of_a_side() -> None:
    text = changed(
        spec_yaml(),
        output__columns={"campaign": "left.campain"},
        output__key="left.campaign + nope",
        output__filter="left.`campaign` = nope",
    )

    assert {"output.columns.campaign", "output.key", "output.filter"} == set(problems(text))
