"""Simulating a join with a table."""

import json

import pytest

from tests.unit.semantics.simulations import plan, row, run, values


def tables(**changes):
    right = {
        "topic": "r",
        "schema": "v INT, s STRING",
        "key": ["cast(record_key as int)"],
        "table": "latest",
        **changes.pop("right", {}),
    }
    return plan(join=changes.pop("join", {"type": "left_outer"}), right=right, **changes)


def record(key, v=None, **more):
    value = None if v is None else {"v": v}
    return json.dumps({"record": True, "key": str(key), "value": value, **more})


def result(k, rv):
    return {"k": k, "v": 0, "rv": rv}


def test_table_is_read_before_the_stream():
    batches = run(tables(), [row(1, 0), row(2, 0)], [record(1, 10), record(1, 11)], batch_size=1)

    assert [[], [], [result(1, 11)], [result(2, None)]] == values(batches)


def test_row_joins_what_the_table_has_in_its_batch():
    stream = [json.dumps({"value": json.loads(row(1, 0)), "batch": n}) for n in (0, 1, 2, 3)]
    table = [record(1, 10, batch=1), record(1, 11, batch=1), record(1, batch=2)]

    batches = run(tables(), stream, table)

    assert [[result(1, None)], [result(1, 11)], [result(1, None)], [result(1, None)]] == values(
        batches
    )
    assert [0, 1, 0, 0] == [batch.state_rows["right"] for batch in batches]
    assert [0, 0, 0, 0] == [batch.state_rows["left"] for batch in batches]


@pytest.mark.parametrize(
    ("right", "last"),
    [
        ({"filter": "v > 0"}, record(1, 0)),
        ({"table": {"version": "latest", "delete": "v = 0"}}, record(1, 0)),
        ({}, record(1)),
    ],
)
def test_record_deletes_the_row_of_its_key(right, last):
    batches = run(tables(right=right), [row(1, 0), row(2, 0)], [record(1, 5), record(2, 6), last])

    assert [result(1, None), result(2, 6)] == [each for batch in values(batches) for each in batch]


def test_bad_record_changes_nothing():
    bad = json.dumps({"record": True, "key": "1", "value": "{"})
    batches = run(tables(), [row(1, 0)], [record(1, 5), bad])

    assert [result(1, 5)] == values(batches)[-1]
    assert {"malformed_json": 1} == dict(batches[0].bad_records["right"])


def test_condition_decides_whether_the_row_of_the_key_matches():
    join = {"type": "left_outer", "condition": "right.v <> 6 and left.k < 3"}
    stream = [row(1, 0), row(2, 0), row(3, 0)]
    batches = run(tables(join=join), stream, [record(1, 5), record(2, 6), record(3, 7)])

    assert [result(1, 5), result(2, None), result(3, None)] == values(batches)[-1]


def test_row_is_joined_however_old_it_is():
    batches = run(tables(), [row(9, 0), row(9, 1000), row(1, 10)], [record(1, 5)], batch_size=1)

    assert [result(1, 5)] == values(batches)[-1]


@pytest.mark.parametrize(
    ("join_type", "expected"), [("left_semi", [1]), ("left_anti", [2, None]), ("inner", [1])]
)
def test_join_types(join_type, expected):
    made = tables(join={"type": join_type}, output__columns={"k": "left.k"})

    batches = run(made, [row(1, 0), row(2, 0), row(None, 0)], [record(1, 5)])

    assert expected == [each["k"] for each in values(batches)[-1]]


def test_of_two_partitions_the_record_that_was_read_last_counts():
    stream = [json.dumps({"value": json.loads(row(1, 0)), "batch": n}) for n in (0, 1)]
    table = [record(1, 10, batch=0, partition=1), record(1, 11, batch=1, partition=0)]

    assert [[result(1, 10)], [result(1, 11)]] == values(run(tables(), stream, table))


def test_envelope_changes_the_table():
    def change(op, before=None, after=None):
        return json.dumps({"op": op, "before": before, "after": after, "source": {"ts_ms": 1}})

    made = tables(
        right={"schema": "id INT, v INT", "key": ["id"], "envelope": "debezium"},
    )
    lines = [
        change("r", after={"id": 1, "v": 1}),
        change("c", after={"id": 2, "v": 2}),
        change("u", before={"id": 1, "v": 1}, after={"id": 1, "v": 3}),
        change("d", before={"id": 2, "v": 2}),
        json.dumps({"record": True, "value": None}),
        change("t"),
    ]

    batches = run(made, [row(1, 0), row(2, 0)], lines)

    assert [result(1, 3), result(2, None)] == values(batches)[-1]
    assert {"schema_mismatch": 1} == dict(batches[0].bad_records["right"])
