"""Envelopes of Debezium, and records without a value: what becomes of a record."""

import json

import pytest

from job.errors import SpecError
from job.plan.warnings import warnings
from tests.unit.semantics.simulations import T, plan, run, values

ROW = {"k": 1, "v": 5, "t": T, "s": 1.50}
FILTERED = "fails left.operations or filter"
TOMBSTONE = '{"record": true, "value": null}'


def made(**changes):
    of_left = {"envelope": "debezium", **changes}
    columns = {"k": "left.k", "v": "left.v", "s": "left.s", "op": "left.record_operation"}
    return plan(
        **{f"left__{name}": value for name, value in of_left.items()}, output__columns=columns
    )


def envelope(op="c", before=None, after=ROW, **more):
    value = {"before": before, "after": after, "source": {"ts_ms": T}, "op": op, **more}
    return json.dumps(value)


def outcome(record, **changes):
    """The reason for which the record is dropped, or its row."""
    later = envelope(after={**ROW, "t": T + 60_000})
    batches = run(made(**changes), [record, later], [json.dumps({"k": 1, "t": T + 1})])
    dropped = [drop.reason for drop in batches[0].drops if drop.record.offset == 0]
    bad = list(batches[0].bad_records["left"])
    assert bad == [reason for reason in dropped if "left." not in reason]
    return dropped[0] if dropped else values(batches)[0][0]


CREATED = {"k": 1, "v": 5, "s": "1.5", "op": "create"}


@pytest.mark.parametrize(
    ("record", "changes", "expected"),
    [
        (envelope(), {}, CREATED),
        (envelope("r"), {}, {**CREATED, "op": "read"}),
        (json.dumps({"schema": {}, "payload": json.loads(envelope())}), {}, CREATED),
        (envelope("u", ROW), {}, FILTERED),
        (envelope("u", ROW), {"operations": ["update"]}, {**CREATED, "op": "update"}),
        (envelope("d", ROW, None), {}, FILTERED),
        (envelope("d", ROW, None), {"operations": ["delete"]}, {**CREATED, "op": "delete"}),
        (envelope("t", None, None), {"operations": ["create", "delete"]}, FILTERED),
        (envelope("m", None, None, message={"prefix": "x"}), {}, FILTERED),
        (envelope(filter="kind"), {"filter": "v > 5"}, FILTERED),
        # The row of another operation may have other types.
        (envelope("u", None, {**ROW, "v": "x"}), {}, FILTERED),
        (envelope("u", None, None), {}, FILTERED),
        (envelope("c", None, {**ROW, "v": "x"}), {}, "schema_mismatch"),
        (envelope("c", None, {**ROW, "v": "x"}), {"filter": "v IS NOT NULL"}, "schema_mismatch"),
        (envelope("c", None, {**ROW, "v": None}), {"filter": "v IS NOT NULL"}, FILTERED),
        (envelope("c", None, None), {}, "schema_mismatch"),
        (envelope("x"), {}, "schema_mismatch"),
        (json.dumps(ROW), {}, "schema_mismatch"),
        (envelope("d", {"v": 5, "t": T}, None), {"operations": ["delete"]}, "schema_mismatch"),
        (envelope("d", {"v": 5, "t": T, "s": "x"}, None),
         {"operations": ["create", "delete"], "key": ["coalesce(k, 1)"]},
         {**CREATED, "k": None, "s": "x", "op": "delete"}),
        (envelope()[:-1], {}, "malformed_json"),
        (json.dumps({"op": "c", "after": ROW, "source": {"ts_ms": 10**18}}), {}, CREATED),
        (json.dumps({"op": "c", "after": ROW, "source": {"ts_ms": 10**18}}),
         {"event_time": "record_source_timestamp"}, "absurd_event_time"),
        (json.dumps({"op": "c", "after": ROW}), {"event_time": "record_source_timestamp"},
         "missing_event_time"),
        (TOMBSTONE, {}, "tombstone, left.on_tombstone is drop"),
        (TOMBSTONE, {"on_tombstone": "bad_record"}, "tombstone"),
        (TOMBSTONE, {"envelope": None}, "tombstone"),
        (TOMBSTONE, {"envelope": None, "on_tombstone": "drop"},
         "tombstone, left.on_tombstone is drop"),
    ],
)  # fmt: skip
def test_what_becomes_of_a_record(record, changes, expected):
    if changes.get("envelope", "") is None:
        first, *_ = run(plan(**{f"left__{n}": v for n, v in changes.items()}), [record])
        assert [expected] == [drop.reason for drop in first.drops]
        return
    assert expected == outcome(record, **changes)


def test_time_of_the_change_is_a_column():
    timed = made(event_time="record_source_timestamp", schema="k INT, v INT, s STRING")
    batches = run(timed, [envelope()], [json.dumps({"k": 1, "t": T + 5_000})])

    assert [CREATED] == values(batches)[0]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"left__envelope": "debezium", "left__format": "csv"}, "envelopes are read in JSON and"),
        ({"left__envelope": "debezium", "left__format": "protobuf"}, "envelopes are read in JSON"),
        ({"left__operations": ["create"]}, "has operations and no envelope"),
        ({"left__envelope": "debezium", "left__operations": []}, "at least 1"),
        ({"left__filter": "record_operation = 'c'"}, "unknown column record_operation"),
    ],
)
def test_refused(changes, message):
    with pytest.raises(SpecError, match=message):
        plan(**changes)


def test_plan_warns_that_a_snapshot_is_repeated():
    (warning,) = warnings(made())

    assert warning.startswith("left.operations has read, the rows of a snapshot")
    assert [] == list(warnings(made(operations=["create"])))
