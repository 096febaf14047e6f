"""Simulating a join with a table."""

import json
from random import Random

import pytest

from job.semantics.trace import batch_lines
from tests.unit.semantics.simulations import T, plan, row, run, values

DELETES = [
    "  right: 1 deleted the row of the key (0/2)",
    "  right: 1 deleted nothing: the key had no row (0/3)",
]


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
        ({"filter": "v > 0"}, 0),
        ({"table": {"version": "latest", "delete": "v = 0"}}, 0),
        ({}, None),
    ],
)
def test_record_deletes_the_row_of_its_key(right, last):
    made = tables(right=right)
    of_table = [
        *(record(1, 5, batch=0), record(2, 6, batch=0)),
        *(record(key, last, batch=1) for key in (1, 3)),
    ]
    stream = [json.dumps({"value": json.loads(row(key, 0)), "batch": 2}) for key in (1, 2)]
    batches = run(made, stream, of_table)

    assert [result(1, None), result(2, 6)] == [each for batch in values(batches) for each in batch]
    assert DELETES == [line for line in batch_lines(made, batches) if "deleted" in line]


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


def as_of(**table):
    """Versions of a key, valid from `t`."""
    right = {
        "topic": "r",
        "schema": "t TIMESTAMP, v INT, s STRING",
        "event_time": "t",
        "watermark_delay": "10 seconds",
        "table": {"version": "as_of", **table},
    }
    return tables(right=right)


def version(key, t, v, **more):
    """`v` None: a tombstone."""
    value = None if v is None else {"t": T + t, "v": v}
    at = {"timestamp": T + t} if v is None else {}
    return json.dumps({"record": True, "key": str(key), "value": value, **at, **more})


def at_times(made, times, versions):
    """The versions that rows of key 1 at these times, in milliseconds, are joined with."""
    batches = run(made, [row(1, t / 1000) for t in times], versions)
    return [each["rv"] for batch in values(batches) for each in batch]


VERSIONS = [version(1, 30_000, 3), version(1, 10_000, 1), version(1, 20_000, 2)]


def test_row_joins_the_version_that_is_valid_at_its_time():
    times = [9_999, 10_000, 19_999, 20_000, 29_999, 30_000, 90_000]

    assert [None, 1, 1, 2, 2, 3, 3] == at_times(as_of(), times, VERSIONS)


def test_version_of_the_largest_offset_is_taken_at_one_time():
    versions = [version(1, 10_000, 1), version(1, 20_000, 2), version(1, 10_000, 7)]

    assert [7, 2] == at_times(as_of(), [10_000, 20_000], versions)


def test_tombstone_deletes_its_key_from_its_time_on():
    versions = [*VERSIONS, version(1, 25_000, None)]

    assert [2, None, None, 3] == at_times(as_of(), [24_999, 25_000, 29_999, 30_000], versions)
    lines = batch_lines(as_of(), run(as_of(), [], versions))
    assert "  right: 1 deleted the key from its event time on (0/3)" in lines


def test_row_before_all_versions_may_join_the_first_one():
    made = as_of(before_first="first")

    assert [1, 1, 2] == at_times(made, [0, 9_999, 20_000], VERSIONS)
    assert [None] == at_times(made, [0], [version(1, 5_000, None), *VERSIONS])


def test_version_is_valid_for_its_retention():
    made = as_of(retention="60 seconds")

    assert [3, None] == at_times(made, [90_000, 90_001], VERSIONS)


def final_results(made, seconds, seed):
    """Of rows and versions up to nine seconds out of order, read in batches of so many seconds."""
    random = Random(seed)

    def read(lines):
        arrivals = [(t + random.uniform(0, 9), line) for t, line in lines]
        return [
            json.dumps({**line, "batch": int(arrival / seconds)})
            for arrival, line in sorted(arrivals, key=lambda each: each[0])
        ]

    rows = [(t, {"value": json.loads(row(t % 3, t, v=t))}) for t in range(100)]
    rows.append((140, {"value": json.loads(row(9, 200))}))
    versions = [
        (t, json.loads(version(t % 4, 1_000 * t, None if t % 11 == 0 else t)))
        for t in range(0, 100, 2)
    ]
    batches = run(made, read(rows), read(versions))
    return sorted((each["v"], each["rv"]) for batch in values(batches) for each in batch)


def test_results_that_wait_do_not_depend_on_the_order_of_reading():
    made = as_of(final=True)
    at_once = {str(final_results(as_of(), seconds, 1)) for seconds in (1, 200)}
    results = [
        final_results(made, seconds, seed) for seed, seconds in enumerate((1, 3, 7, 40, 200))
    ]

    assert len(at_once) > 1
    assert 100 == len(results[0])
    assert all(results[0] == each for each in results)


def test_late_version_is_valid_for_rows_without_a_result():
    """The watermark of batch 3 is 50 s. The version at 40 s is newer than the one of that time, and
    the one at 5 s is not."""
    stream = batched([row(1, 15), row(1, 60), row(2, 60), row(2, 100)], (0, 1, 2, 3))
    versions = [version(1, 10_000, 1, batch=0), version(1, 40_000, 2, batch=3)]
    versions.append(version(1, 5_000, 3, batch=3))
    batches = run(as_of(final=True), stream, versions)

    assert [[], [], [1], [], [2, None]] == [
        [each["rv"] for each in batch] for batch in values(batches)
    ]
    assert [["late"]] == [[d.reason for d in each.drops] for each in batches if each.drops]


def test_row_waits_for_a_row_of_the_table():
    """The delay of the stream is 10 s. Rows wait for 20 s, until the watermark is 35.001 s."""
    made = tables(right={"table": {"version": "latest", "wait": "20 seconds"}})
    stream = batched([row(1, 15), row(2, 15), row(1, 30), row(9, 60), row(9, 60)], (0, 0, 1, 2, 3))
    rows = [record(1, 10, batch=1), record(1, 11, batch=2), record(2, 20, batch=4)]
    batches = run(made, stream, rows)

    found = [[(each["k"], each["rv"]) for each in batch] for batch in values(batches)]
    assert [[], [(1, 10), (1, 10)], []] == found[:3]
    assert [(2, None)] == found[3]


def batched(lines, numbers):
    return [
        json.dumps({"value": json.loads(line), "batch": n})
        for line, n in zip(lines, numbers, strict=True)
    ]


def test_row_behind_the_watermark_of_the_stream_is_late():
    stream = batched([row(1, 100), row(1, 100), row(1, 30)], (0, 1, 2))
    batches = run(as_of(), stream, VERSIONS)

    assert [["late"]] == [[d.reason for d in batch.drops] for batch in batches if batch.drops]


def test_versions_that_no_row_can_need_leave_the_state():
    stream = batched([row(2, 0), row(2, 100), row(2, 100), row(2, 100)], (0, 1, 2, 3))
    deleted = version(1, 40_000, None)
    batches = run(as_of(), stream, [*VERSIONS, version(3, 0, 1), deleted])

    assert [5, 5, 5, 1] == [batch.state_rows["right"] for batch in batches][:4]


def test_deletion_is_remembered_for_the_watermark_delay_of_the_table():
    """The watermark of the batch with the late version is 49 s or 51 s, the deletion at 40 s."""
    for newest, found in ((59, None), (61, 1)):
        stream = batched([row(2, newest), row(2, newest), row(1, 90)], (0, 1, 2))
        versions = [version(1, 40_000, None, batch=0), version(1, 10_000, 1, batch=2)]
        batches = run(as_of(), stream, versions)

        assert found == values(batches)[2][0]["rv"]
