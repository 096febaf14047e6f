"""The spec: accepted values, refused values, and the messages."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from job.errors import SpecError
from job.spec.durations import rounded_text
from job.spec.join_conditions import JoinType
from job.spec.spec import spec_from_yaml
from tests.unit.specs import changed, spec_yaml

EXAMPLE = (Path(__file__).parents[3] / "join.example.yaml").read_text()


def problems(text: str, environment: dict[str, str] | None = None) -> dict[str, str]:
    """Message by field, for all problems of `text`."""
    with pytest.raises(SpecError) as refused:
        spec_from_yaml(text, environment or {})
    return {problem.field: problem.message for problem in refused.value.problems}


def example(**changes: Any) -> str:
    return changed(EXAMPLE, **changes)


def test_example_is_read_as_written() -> None:
    spec = spec_from_yaml(EXAMPLE, {"KAFKA_BOOTSTRAP_SERVERS": "a:1,b:2"})

    assert JoinType.LEFT_OUTER is spec.join.type
    assert "a:1,b:2" == spec.kafka.bootstrap_servers
    assert timedelta(seconds=10) == spec.left.watermark_delay
    assert spec.join.match_window is not None
    assert timedelta(hours=1) == spec.join.match_window.after


def test_variable_without_value_takes_its_default() -> None:
    assert "localhost:9092" == spec_from_yaml(EXAMPLE, {}).kafka.bootstrap_servers


def test_variable_without_value_or_default_is_named_with_its_field() -> None:
    text = example(output__topic="${OUT}", name="${NAME}")

    assert {
        "name": "environment variable NAME is not set: set it, or write ${NAME:-default}",
        "output.topic": "environment variable OUT is not set: set it, or write ${OUT:-default}",
    } == problems(text)


def test_value_of_a_variable_cannot_add_fields() -> None:
    text = example(left__filter="${WHERE}")
    spec = spec_from_yaml(text, {"WHERE": "x\non_null_key: drop"})

    assert "x\non_null_key: drop" == spec.left.filter
    assert "pass" == spec.on_null_key


def test_doubled_dollar_stands_for_itself() -> None:
    text = example(left__filter="campaign <> '$${X}'")

    assert "campaign <> '${X}'" == spec_from_yaml(text, {}).left.filter


@pytest.mark.parametrize(
    "changes", [{"output__topic": "ad_attribution.commits"}, {"output__commit_topic": "clicks"}]
)
def test_commit_topic_contains_only_markers(changes: dict[str, str]) -> None:
    [message] = problems(example(**changes)).values()

    assert "is also a topic of records, and contains only markers" in message


def test_all_problems_are_listed_at_once_each_with_its_field() -> None:
    text = example(
        name="Ad Attribution",
        left__event_tim="shown_at",
        left__watermark_delay=10,
        right__topic="no topic",
        right__key="ad_id",
        join__type="outer",
        output__delivery="twice",
        start_from="yesterday",
        checkpoint=None,
    )
    found = problems(text)

    assert {
        "name", "left.event_tim", "left.watermark_delay", "right.topic", "right.key",
        "join.type", "output.delivery", "start_from", "checkpoint",
    } == set(found)  # fmt: skip
    assert "unknown field; did you mean event_time?" == found["left.event_tim"]
    assert "must be a list, e.g. [ad_id]" == found["right.key"]
    assert "is required" == found["checkpoint"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("10 seconds", timedelta(seconds=10)),
        ("1 hour", timedelta(hours=1)),
        ("1 hour 30 minutes", timedelta(minutes=90)),
        ("500 milliseconds", timedelta(milliseconds=500)),
        ("500ms", timedelta(milliseconds=500)),
        ("2 weeks", timedelta(weeks=2)),
        ("10 SECONDS", timedelta(seconds=10)),
    ],
)
def test_durations_are_read_with_units(text: str, expected: timedelta) -> None:
    spec = spec_from_yaml(example(right__watermark_delay=text), {})

    assert expected == spec.right.watermark_delay


def test_durations_in_sentences_are_rounded_to_two_units() -> None:
    texts = {
        0: "0.0 s", 12.34: "12.3 s", -12.34: "12.3 s", 59.96: "1 min", 245.4: "4 min 5 s",
        3_599.6: "1 h", 10_800: "3 h", 86_399: "1 d", 97_000: "1 d 3 h", 1.8e9: "20,833 d 8 h",
    }  # fmt: skip
    assert texts == {each: rounded_text(timedelta(seconds=each)) for each in texts}


@pytest.mark.parametrize(
    "text", ["10", "ten seconds", "10 parsecs", "", "10 seconds or so", "-1 s"]
)
def test_invalid_duration_is_refused(text: str) -> None:
    assert ["right.watermark_delay"] == list(problems(example(right__watermark_delay=text)))


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("1970-01-01T01:00:00+01:00", "must be later than 1970-01-01T00:00:00Z"),
        ("1980-01-01T00:00:00", "must be an ISO-8601 time with an offset"),
        ("1980", "must be an ISO-8601 time with an offset"),
    ],
)
def test_min_event_time_is_later_than_the_first_watermark(text: str, wrong: str) -> None:
    earliest = datetime(1970, 1, 1, 0, 0, 0, 1, UTC)
    valid = spec_from_yaml(example(left__min_event_time="1970-01-01T00:00:00.000001Z"), {})

    [(field, message)] = problems(example(left__min_event_time=text)).items()

    assert earliest == valid.left.min_event_time
    assert "left.min_event_time" == field
    assert message.startswith(wrong)


def test_watermark_delay_of_zero_is_refused() -> None:
    found = problems(example(left__watermark_delay="0 seconds"))

    assert {"left.watermark_delay": "must be at least 1 millisecond"} == found


def test_field_written_twice_is_refused_with_its_line() -> None:
    text = EXAMPLE.replace("checkpoint:", "name: again\ncheckpoint:")
    line = text.splitlines().index("name: again") + 1

    assert {f"line {line}, column 1": "is not YAML: 'name' is written twice"} == problems(text)


@pytest.mark.parametrize("text", ["", "- a", "a: [", "just words", "a: \x00"])
def test_text_that_is_not_a_spec_is_refused(text: str) -> None:
    assert 1 == len(problems(text))


def test_empty_match_window_is_refused() -> None:
    text = example(join__match_window={"before": "-10 seconds", "after": "5 seconds"})

    assert {
        "join.match_window": "is empty: before + after is negative, so no rows can match"
    } == problems(text)


def test_match_window_may_lie_completely_after_the_left_row() -> None:
    text = example(join__match_window={"before": "-5 seconds", "after": "10 seconds"})

    window = spec_from_yaml(text, {}).join.match_window
    assert window is not None
    assert timedelta(seconds=-5) == window.before


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"join__window": "10 minutes"}, "match_window and window"),
        ({"on_bad_record": None}, "on_bad_record: drop"),
        ({"dead_letter": {"topic": "dead"}}, "dead_letter and on_bad_record"),
        ({"on_null_key": "dead_letter"}, "has `on_null_key: dead_letter` and no dead_letter topic"),
        ({"on_late_row": "dead_letter"}, "has `on_late_row: dead_letter` and no dead_letter topic"),
        (
            {"on_bad_record": None, "dead_letter": {"topic": "attributed"}},
            "is also output.topic",
        ),
        (
            {"on_bad_record": None, "dead_letter": {"topic": "clicks"}},
            "is also a topic of right",
        ),
        ({"left__key": ["ad_id", "campaign"]}, "left.key has 2 entries and right.key 1"),
        ({"output__topic": "clicks"}, "is also a topic of right"),
    ],
)
def test_fields_that_contradict_each_other_are_refused(changes: dict[str, Any], word: str) -> None:
    assert word in " ".join(problems(example(**changes)).values())


@pytest.mark.parametrize(
    ("rate", "message"),
    [
        (0, "must be greater than 0"),
        (-5, "must be greater than 0"),
        ("1000/s", "must be a number"),
        ([1], "must be a number"),
        (float("inf"), "must be a finite number"),
    ],
)
def test_expected_rate_is_a_positive_number(rate: Any, message: str) -> None:
    assert {"left.expected_rate": message} == problems(example(left__expected_rate=rate))


def test_expected_rate_can_come_from_the_environment() -> None:
    spec = spec_from_yaml(example(right__expected_rate="${RATE:-2.5}"), {})

    assert 2.5 == spec.right.expected_rate


@pytest.mark.parametrize("text", ["${A:-${B}}", "${A-x}", "${A:?x}", "${a.b}", "${ A }", "x${A"])
def test_text_like_a_variable_that_is_none_is_refused(text: str) -> None:
    found = problems(spec_yaml(output__topic=text), {"A": "secret", "B": "other"})
    assert "begins no variable" in found["output.topic"]
    assert "secret" not in str(found)


def test_dollar_and_brace_of_a_pattern_are_no_variable() -> None:
    spec = spec_from_yaml(spec_yaml(left__filter="campaign rlike 'a${1,2}'"), {})
    assert "campaign rlike 'a${1,2}'" == spec.left.filter


@pytest.mark.parametrize("pattern", ["a{99999999999999999999}", "(" * 5_000])
def test_pattern_beyond_the_limits_of_python_is_refused(pattern: str) -> None:
    text = changed(spec_yaml(), left__topic=None, left__topic_pattern=pattern[:1_000])
    assert "regular expression" in str(problems(text))


def test_character_beyond_unicode_is_refused() -> None:
    with pytest.raises(SpecError, match="is not YAML"):
        spec_from_yaml('name: "\\U00110000"', {})


@pytest.mark.parametrize("url", ["http://a..b:8081", "http://localhost:1/\u00e9", "http://\uff48"])
def test_registry_url_that_no_client_can_use_is_refused(url: str) -> None:
    assert "is not a URL" in str(problems(spec_yaml(schema_registry={"url": url})))


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("left:\n  schema: id INT, s STRUCT<a: INT>\n", "schema"),
        ("left:\n  key: [m['a']]\n", "key"),
        ("left:\n  columns:\n    secret_1: a, b: c\n", "secret_1"),
    ],
)
def test_text_that_yaml_takes_for_a_mapping_or_a_list_is_named(text: str, field: str) -> None:
    (message,) = problems(text).values()

    assert f"; put the text of `{field}` in quotes" in message


def test_variable_within_braces_needs_quotes() -> None:
    (message,) = problems("kafka: {security: {password: ${PW}}}").values()

    assert message.endswith('put quotes around a variable, e.g. {password: "${PW}"}')
