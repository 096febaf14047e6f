"""A comparison in words and as JSON."""

import json
from dataclasses import replace

from job.compare.report import OutputRead, Report
from job.compare.results import Comparison, Kind, Shown
from job.compare.values import ContentReader
from job.spec.value_format import KeyFormat


def output(topic: str, *values: bytes) -> OutputRead:
    value = ContentReader(KeyFormat.JSON, None)
    for each in values:
        value.text(each)
    key = ContentReader(KeyFormat.STRING, None)
    return OutputRead(topic, results=1_003, outside=2, without_id=1, key=key, value=value)


def report(**counts: int) -> Report:
    comparison = Comparison(equal=1_000)
    for kind, count in counts.items():
        comparison.counts[Kind(kind)] = count
    return Report((output("out"), output("shadow", b"{")), comparison)


def test_text_has_counts_then_results_with_both_contents() -> None:
    made = report(different=3, newer_second=12)
    contents = ([("1", '{"n": 1}')], [("1", None)])
    made.comparison.shown[Kind.DIFFERENT].append(Shown("l/0/1|r/0/1", contents))

    text = made.text

    assert text.startswith("first: out, 1,003 results\n")
    assert "  not compared, outside --since and --until: 2\n" in text
    assert "  not compared, without streamjoin-id: 1\n" in text
    assert "  values compared as bytes: 1 (the first: not json" in text
    assert "  equal                                   1,000\n" in text
    assert "  newer than the end of the first            12 (no difference)\n" in text
    assert text.endswith(
        "With another key or value:\n"
        "  l/0/1|r/0/1\n"
        '    first: key 1, value {"n": 1}\n'
        "    second: key 1, value null\n"
        "\nThe outputs differ."
    )


def test_newer_results_are_no_difference() -> None:
    assert report(newer_first=1, newer_second=1).text.endswith("\nThe outputs are equal.")


def test_comparison_of_nothing_is_named() -> None:
    empty = [replace(output(topic), results=0) for topic in ("out", "shadow")]

    assert Report((empty[0], empty[1]), Comparison()).text.endswith("\nNo results are compared.")


def test_facts_are_the_same_as_json() -> None:
    made = report(only_first=3)
    made.comparison.shown[Kind.ONLY_FIRST].append(Shown("l/0/1|", ([(None, "{}")], [])))

    facts = json.loads(json.dumps(made.as_json))

    assert not facts["equal"]
    assert 1_003 == facts["first"]["results"]
    assert 1 == facts["second"]["value"]["as_bytes"]
    assert 1_000 == facts["counts"]["equal"]
    assert 3 == facts["counts"]["only_first"]
    assert [{"id": "l/0/1|", "first": [{"key": None, "value": "{}"}], "second": []}] == (
        facts["shown"]["only_first"]
    )
