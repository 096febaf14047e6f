"""Computed columns, event times that are expressions, and filters of several kinds of records."""

import json
from collections import Counter
from itertools import chain

import pytest

from tests.unit.semantics.simulations import T, plan, run, values

SCHEMA = "k INT, kind STRING, at BIGINT, p STRUCT<ts: BIGINT, no: INT>, t TIMESTAMP, s STRING"


def made(**changes):
    of_left = {"schema": SCHEMA, "event_time": "timestamp_seconds(at)", **changes}
    return plan(**{f"left__{name}": value for name, value in of_left.items()},
                output__columns={"k": "left.k"})  # fmt: skip


def line(**changes):
    return json.dumps({"k": 1, "kind": "order", "at": T // 1000, **changes})


def test_computed_columns_are_used_in_key_filter_condition_and_output():
    computed = plan(
        left__columns={"twice": "k * 2", "half": "int(twice / 4)", "word": "upper(s)"},
        left__key=["half"],
        left__filter="word <> 'NO'",
        join__condition="left.word <> right.s",
        output__columns={"w": "left.word", "h": "left.half", "rv": "right.v"},
    )
    left = [json.dumps({"k": 4, "t": T, "s": s}) for s in ("a", "no", "b")]
    right = [json.dumps({"k": 2, "t": T, "v": 7, "s": "A"})]

    results = list(chain.from_iterable(values(run(computed, left, right))))

    # The rows with the words NO and A: one is filtered, the other does not expire.
    assert [{"w": "B", "h": 2, "rv": 7}] == results


def test_event_time_of_seconds_joins_with_one_of_milliseconds():
    right = [json.dumps({"k": 1, "t": T + 4_000, "v": 3}), json.dumps({"k": 1, "t": T + 6_000})]

    batches = run(plan(left__schema=SCHEMA, left__event_time="timestamp_seconds(at)",
                       output__columns={"rv": "right.v"}), [line()], right)  # fmt: skip

    assert [{"rv": 3}] == list(chain.from_iterable(values(batches)))


@pytest.mark.parametrize(
    ("changes", "record", "reason"),
    [
        ({}, line(at=None), "missing_event_time"),
        ({}, line(at=-5), "absurd_event_time"),
        ({}, line(at=9_000_000_000_000), "absurd_event_time"),
        ({}, line(at=9_223_372_036_854_775_807), "expression_failed left.event_time"),
        ({}, line(t="yesterday"), "schema_mismatch"),
        ({"event_time": "to_timestamp(s, 'dd/MM/yyyy HH:mm')"}, line(s="14/11/2023 22:13"), None),
        ({"event_time": "to_timestamp(s, 'dd/MM/yyyy HH:mm')"}, line(s="11/14/2023 22:13"),
         "expression_failed left.event_time"),
        ({"columns": {"n": "cast(s AS INT)"}}, line(s="x"), "expression_failed left.columns.n"),
        ({"columns": {"n": "cast(s AS INT)", "m": "n + 1"}}, line(s="7"), None),
        # The filter is false: the record is of another kind.
        ({"filter": "kind = 'order'"}, line(kind="user", k="u-7"), "filter"),
        ({"filter": "kind = 'order'"}, line(kind="user", at=None), "filter"),
        ({"filter": "kind = 'order'"}, line(kind="user", p={"no": "x"}), "filter"),
        ({"filter": "kind = 'order'"}, line(kind="user"), "filter"),
        ({"filter": "kind = 'order'", "columns": {"n": "cast(s AS INT)"}},
         line(kind="user", s="x"), "filter"),
        ({"filter": "big", "columns": {"big": "cast(s AS INT) > 3"}}, line(s="2", at=None),
         "filter"),
        ({"filter": "kind = 'order' AND 1 / p.no > 0"}, line(kind="user", k="x"), "filter"),
        # The filter is null or fails, or its column cannot be read.
        ({"filter": "kind = 'order'"}, line(kind=None, k="x"), "schema_mismatch"),
        ({"filter": "kind = 'order'"}, line(kind="order", k="x"), "schema_mismatch"),
        ({"filter": "k IS NOT NULL"}, line(k="x"), "schema_mismatch"),
        ({"filter": "k IS NOT NULL"}, line(k=None, at=None), "filter"),
        ({"filter": "p.no IS NOT NULL"}, line(p={"no": "x"}), "schema_mismatch"),
        ({"filter": "t IS NOT NULL", "event_time": "t"}, line(t="nope"), "unparsable_event_time"),
        ({"filter": "n IS NOT NULL", "columns": {"n": "cast(s AS INT)"}}, line(s="x"),
         "expression_failed left.columns.n"),
        ({"filter": "m > 0", "columns": {"n": "cast(s AS INT)", "m": "coalesce(n, 0)"}},
         line(s="x"), "expression_failed left.columns.n"),
        ({"filter": "1 / p.no > 0"}, line(p={"no": 0}), "expression_failed left.filter"),
        ({"filter": "1 / p.no > 0"}, line(p={"no": 0}, k="x"), "schema_mismatch"),
        # Whatever the filter: these are no records of any kind.
        ({"filter": "kind IS NOT NULL"}, "{", "malformed_json"),
        ({"filter": "kind IS NOT NULL"}, '{"record": true, "value": null}', "tombstone"),
    ],
)  # fmt: skip
def test_what_becomes_of_a_record(changes, record, reason):
    first, *_ = run(made(**changes), [record])

    found = [f"{drop.reason} {drop.field or ''}".strip() for drop in first.drops]
    bad = {name: count for name, count in first.bad_records["left"].items() if count}
    if reason == "filter":
        assert (["fails left.filter"], {}) == (found, bad)
    elif reason is None:
        assert ([], {}) == (found, bad)
    else:
        assert ([reason], Counter([reason.split()[0]])) == (found, bad)


def test_filtered_record_advances_the_watermark_only_with_a_valid_event_time():
    filtered = made(filter="kind = 'order'", max_event_time_ahead="1 hour")
    late = {"timestamp": T + 60_000}
    right = [json.dumps({"k": 9, "t": T + 60_000})]

    def watermark(record):
        return run(filtered, [record], right)[-1].watermarks.eviction

    def as_record(**changes):
        return json.dumps({"record": True, "value": json.loads(line(**changes)), **late})

    assert T + 50_000 == watermark(as_record(kind="user", at=T // 1000 + 60))
    assert 0 == watermark(as_record(kind="user", at=T // 1000 + 60, k="x"))
    assert 0 == watermark(as_record(kind="user", at=None))
