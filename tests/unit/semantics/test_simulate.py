"""Simulating a join: batches, drops, stories and the tests in a spec."""

import io
import json
import sys

import pytest

from job.__main__ import main
from job.semantics.cli import SimulationError, outcome_lines, run_spec_tests, simulation_lines
from job.semantics.input_records import InputRecord
from job.semantics.simulated_side import BadRecord, DecodedRow, SideReader
from job.semantics.spec_tests import SpecTest, run_spec_test
from job.semantics.trace import batch_lines
from tests.sql_worker import ROWS
from tests.unit.semantics.simulations import T, plan, row, run, spec, values


def test_matches_are_emitted_at_once_and_unmatched_rows_when_the_watermark_has_passed():
    batches = run(
        plan(),
        [row(1, 0, 7), row(2, 0, 8), row(9, 100)],
        [row(1, 5, 70), row(9, 100)],
    )

    assert [
        [{"k": 1, "v": 7, "rv": 70}, {"k": 9, "v": 0, "rv": 0}],
        [{"k": 2, "v": 8, "rv": None}],
    ] == values(batches)


def test_values_are_printed_in_utf_8_whatever_the_charset_of_the_machine(tmp_path, monkeypatch):
    paths = {name: tmp_path / name for name in ("join.yaml", "left", "right")}
    document = spec(output__columns={"s": "left.s"}, join__type="inner")
    paths["join.yaml"].write_text(json.dumps(document))
    paths["left"].write_text(row(1, 0, s="é 東"))
    paths["right"].write_text(row(1, 0))
    files = ["--left", paths["left"], "--right", paths["right"], "--format", "jsonl"]
    arguments = ["streamjoin", "simulate", paths["join.yaml"], *files]
    monkeypatch.setattr(sys, "argv", [str(argument) for argument in arguments])
    printed = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(printed, encoding="iso-8859-9"))

    with pytest.raises(SystemExit):
        main()

    sys.stdout.flush()
    assert '{"s":"é 東"}\n'.encode() == printed.getvalue()


def test_left_anti_gives_the_unmatched_rows_only():
    made = plan(join__type="left_anti", output__columns={"k": "left.k"})

    batches = run(made, [row(1, 0), row(2, 0), row(9, 100)], [row(1, 5), row(9, 100)])

    assert [[], [{"k": 2}]] == values(batches)


def test_both_rows_must_fall_into_one_tumbling_window():
    made = plan(join__match_window=None, join__window="10 seconds", join__type="inner")

    (batch,) = run(made, [row(1, 0), row(2, 0)], [row(1, 9.999), row(2, 10)], batch_size=9)[:1]

    assert [1] == [json.loads(record.value)["k"] for record in batch.output]


def test_windows_begin_later_by_the_offset():
    window = {"size": "10 seconds", "offset": "3 seconds"}
    made = plan(join__match_window=None, join__window=window, join__type="inner")

    (batch,) = run(made, [row(1, 0), row(2, 0)], [row(1, 2.999), row(2, 3)], batch_size=9)[:1]

    assert [1] == [json.loads(record.value)["k"] for record in batch.output]


def test_null_key_matches_nothing_and_is_emitted_unmatched_at_once():
    for join_type in ("left_outer", "full_outer"):
        (batch,) = run(plan(join__type=join_type), [row(None, 0, 1)], [row(None, 0, 2)])[:1]
        assert {"k": None, "v": 1, "rv": None} in [json.loads(r.value) for r in batch.output]
        assert {"left": 1, "right": 1} == batch.null_keys


def test_null_matches_null_only_in_a_null_safe_pair():
    keys = {"left__key": ["k", "s"], "right__key": ["k", "s"]}
    made = plan(join__null_safe=[True, False], on_null_key="drop", **keys)
    rows = [row(None, 0, 1, s="a"), row(1, 0, 2)]

    batches = run(made, rows, rows)

    assert [{"k": None, "v": 1, "rv": 1}] == values(batches)[0]
    assert {"left": 1, "right": 1} == batches[0].null_keys


def test_null_safe_key_matches_null():
    made = plan(join__null_safe=True)

    assert [[{"k": None, "v": 1, "rv": 2}], []] == values(
        run(made, [row(None, 0, 1)], [row(None, 0, 2)])
    )


def test_rows_that_fail_a_side_filter_move_the_watermark():
    made = plan(left__filter="v > 0", right__filter="v > 0")

    batches = run(made, [row(1, 0, 1), row(9, 100)], [row(9, 100, None)])

    assert (T + 90_000) == batches[-1].watermarks.eviction
    assert ["fails left.filter", "right.filter is null"] == [d.reason for d in batches[0].drops]


def test_one_sided_condition_is_part_of_on_and_not_a_filter():
    made = plan(join__condition="left.v > 5 and right.v > 5")

    (batch,) = run(made, [row(1, 0, 1), row(1, 0, 9)], [row(1, 0, 9), row(1, 0, 1)])[:1]

    assert [{"k": 1, "v": 1, "rv": None}, {"k": 1, "v": 9, "rv": 9}] == values([batch])[0]


def test_output_filter_runs_after_the_join():
    made = plan(output__filter="rv is null")

    assert [[], [{"k": 2, "v": 0, "rv": None}]] == values(
        run(made, [row(1, 0), row(2, 0), row(9, 100)], [row(1, 0), row(9, 100)])
    )


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ('{"value": null}', "tombstone"),
        ("{", "malformed_json"),
        ("[1]", "malformed_json"),
        ('{"k": NaN, "t": 1}', "malformed_json"),
        ('{"k": 1, "t": 1}{"k": 2, "t": 1}', "malformed_json"),
        ('{"k": "one", "t": 1}', "schema_mismatch"),
        ('{"k": 1.0, "t": 1}', "schema_mismatch"),
        ('{"k": 3000000000, "t": 1}', "schema_mismatch"),
        ('{"k": 1}', "missing_event_time"),
        ('{"k": 1, "t": null}', "missing_event_time"),
        ('{"k": 1, "t": "soon"}', "unparsable_event_time"),
        ('{"k": 1, "t": "12:00"}', "unparsable_event_time"),
        ('{"k": 1, "t": "2024-03-01T11:00[Europe/Berlin]"}', "unparsable_event_time"),
        ('{"k": 1, "t": "2024-03-01T10:00,5Z"}', "unparsable_event_time"),
        ('{"k": 1, "t": "now and Then"}', "unparsable_event_time"),
        ('{"k": 1, "t": 1709287200}', "absurd_event_time"),
        ('{"k": 1, "t": "1979-12-31T23:59:59.999999Z"}', "absurd_event_time"),
        ('{"k": 1, "t": -1}', "absurd_event_time"),
        ('{"k": 1, "t": 253402300800000}', "absurd_event_time"),
        ('{"k": 1, "t": "1969-12-31T23:59:59Z"}', "absurd_event_time"),
    ],
)
def test_record_that_cannot_be_read_is_counted_with_its_reason(line, reason):
    (batch,) = run(plan(), [line])

    assert {"left": {reason: 1}, "right": {}} == batch.bad_records
    assert [reason] == [drop.reason for drop in batch.drops]


@pytest.mark.parametrize(
    ("recorded_at", "reason"),
    [(T, "future_event_time"), (T + 1, None), (T + 1.9, None), (None, None)],
)
def test_event_time_is_compared_with_the_timestamp_of_its_record(recorded_at, reason):
    made = plan(left__max_event_time_ahead="10 seconds")
    recorded_us = None if recorded_at is None else round(recorded_at * 1000)
    record = InputRecord(row(1, 10.001), offset=0, timestamp_us=recorded_us)

    [read] = SideReader(made, "left", ROWS).read([record])

    assert reason == (read.reason if isinstance(read, BadRecord) else None)


_MINUTE = 1_699_999_980_000_000


@pytest.mark.parametrize(
    ("written", "micros"),
    [
        (1_700_000_000_123, 1_700_000_000_123_000),
        ("1700000000123", 1_700_000_000_123_000),
        ("2023-11-14T22:13:20.000001Z", 1_700_000_000_000_001),
        ("2023-11-14 22:13:20", 1_700_000_000_000_000),
        ("2023-11-15T00:13:20+02:00", 1_700_000_000_000_000),
        ("2023-11-14", 1_699_920_000_000_000),
        ("1980-01-01T00:00:00Z", 315_532_800_000_000),
        ("2023-11-14T22:13Z", _MINUTE),
        ("2023-11-14t22:13z", _MINUTE),
        ("2023-11-14T23:13+01:00", _MINUTE),
        ("2023-11-14 22:13 UTC", _MINUTE),
        ("2023-11-14T22:13Z[UTC]", _MINUTE),
        ("2023-11-14T23:13:00+01:00[Europe/Berlin]", _MINUTE),
        ("20231114T221300Z", _MINUTE),
        ("20231114t2213", _MINUTE),
        ("20231114T231300,000+0100", _MINUTE),
        ("2023-11-14T22:13:00,123Z", _MINUTE + 123_000),
        ("2023-11-14T22:13:00.1234567Z", _MINUTE + 123_456),
    ],
)
def test_event_times_are_epoch_milliseconds_or_iso_8601(written, micros):
    record = InputRecord(json.dumps({"t": written}), 0)
    [read] = SideReader(plan(), "left", ROWS).read([record])

    assert isinstance(read, DecodedRow)
    assert micros == read.event_time_us


def test_late_rows_are_dropped_one_batch_after_the_watermark_moved():
    late = row(1, 0)
    lines = [[row(9, 100)], [late], [late]]
    left = [json.dumps({"batch": n, "value": v}) for n, batch in enumerate(lines) for v in batch]

    batches = run(plan(), left, left)

    assert [[], [], ["late", "late"]] == [[d.reason for d in b.drops] for b in batches[:3]]


def test_batches_follow_markers_a_virtual_clock_or_a_size():
    lines = [json.dumps({"value": row(k, k), "timestamp": T + k * 1000}) for k in (0, 1, 12)]
    marked = [json.dumps({"value": row(k, k), "batch": k // 2}) for k in (0, 1, 2)]

    assert [2, 1] == [b.records["left"] for b in run(plan(), lines, batch_size=2)]
    assert [2, 1] == [b.records["left"] for b in run(plan(), lines, trigger_ms=10_000)]
    assert [2, 1] == [b.records["left"] for b in run(plan(), marked)]


def test_telling_names_drops_and_output():
    text = "\n".join(batch_lines(plan(), run(plan(), ["{", row(1, 0)], [row(1, 0)])))

    assert "left: 1 dropped, malformed_json (0/0)" in text
    assert '{"k":1,"v":0,"rv":0}' in text


def test_output_names_dead_letters_and_the_record_at_which_the_query_fails():
    bad, late = ["{", row(None, 100), row(1, 100), row(2, 0)], [row(1, 100)]
    everything = {
        "on_bad_record": None,
        "dead_letter": {"topic": "dead"},
        "on_null_key": "dead_letter",
        "on_late_row": "dead_letter",
    }

    def lines(**changes):
        made = plan(**changes)
        return "\n".join(batch_lines(made, run(made, bad, late, batch_size=1)))

    letters = lines(**everything)
    assert "left: 1 to the dead letters, malformed_json (0/0)" in letters
    assert "left: 1 to the dead letters, null_key (0/1)" in letters
    assert "left: 1 to the dead letters, late (0/3)" in letters
    assert "left: 1 dropped, late (0/3)" in lines()
    assert "left: 1 at which the query FAILS, malformed_json" in lines(on_bad_record="fail")


def test_spec_test_names_the_records_that_go_to_the_dead_letters():
    made = plan(on_bad_record=None, dead_letter={"topic": "dead"})
    outcome = run_spec_test(made, ROWS, SpecTest("t", left=[{"value": {"k": 1}}]))

    assert outcome.passed
    assert ["left 0/0: to the dead letters, missing_event_time"] == outcome.left_out


def test_what_depends_on_the_clock_is_refused_by_name(tmp_path):
    made = plan(right__idle_after="1 minute")
    for name in ("left", "right"):
        (tmp_path / name).write_text("")

    with pytest.raises(SimulationError, match=r"cannot be simulated: it uses right\.idle_after"):
        simulation_lines(made, ROWS, tmp_path / "left", tmp_path / "right")


def test_jsonl_is_just_the_output_values(tmp_path):
    (tmp_path / "left").write_text(row(1, 0) + "\n")
    (tmp_path / "right").write_text(row(1, 0, 3) + "\n")

    lines = simulation_lines(plan(), ROWS, tmp_path / "left", tmp_path / "right", as_jsonl=True)

    assert ['{"k":1,"v":0,"rv":3}'] == list(lines)


def test_test_in_a_spec_passes_or_lists_missing_and_unexpected_rows():
    rows = {"left": [{"k": 1, "t": T, "v": 5}], "right": [{"k": 1, "t": T, "v": 6}]}
    good = SpecTest("good", **rows, output=[{"k": 1, "rv": 6}])
    bad = SpecTest("bad", **rows, output=[{"k": 2}])

    assert run_spec_test(plan(), ROWS, good).passed
    outcome = run_spec_test(plan(), ROWS, bad)
    assert ([{"k": 2}], [{"k": 1, "v": 5, "rv": 6}]) == (outcome.missing, outcome.unexpected)
    outcomes = run_spec_tests(plan(), ROWS, [good, bad])
    lines = [line for each in outcomes for line in outcome_lines(each)]
    assert ["passed: good", "FAILED: bad", "  missing: {'k': 2}"] == lines[:3]
    assert {"name": "bad", "passed": False, "missing": [{"k": 2}]}.items() <= (
        outcomes[1].as_json.items()
    )


NESTED = "k INT, t TIMESTAMP, r ARRAY<DOUBLE>, q STRUCT<a: INT, b: STRING>, m MAP<STRING, INT>"


@pytest.mark.parametrize(
    ("key", "left", "right", "matches"),
    [
        ("r", [1.0, None], [1, None], True),
        ("r", [-0.0], [0.0], True),
        ("r", [1.0], [1.0, None], False),
        ("r", [], [], True),
        ("r", None, None, False),
        ("q", {"a": 1, "b": None}, {"a": 1}, True),
        ("q", {"a": 1}, {"a": 2}, False),
        ("q.a", {"a": 1, "b": "x"}, {"a": 1, "b": "y"}, True),
        ("r[0]", [1.0, 2.0], [1.0], True),
    ],
)
def test_arrays_and_structs_are_keys(key, left, right, matches):
    sides = {f"{side}__{name}": value for side in ("left", "right") for name, value in
             {"schema": NESTED, "key": [key]}.items()}  # fmt: skip
    made = plan(**sides, join__type="inner", output__columns={"r": "left.r", "q": "left.q"})
    name = key[0]

    batches = run(made, [json.dumps({"t": T, name: left})], [json.dumps({"t": T, name: right})])

    assert matches == bool(batches[0].output)


def test_nested_value_is_written_as_json():
    made = plan(left__schema=NESTED, output__columns={"r": "left.r", "q": "left.q", "m": "left.m"})
    line = f'{{"k": 1, "t": {T}, "r": [1e7, null], "q": {{"b": "x"}}, "m": {{"z": 1}}}}'

    (out,) = run(made, [line], [row(1, 0)])[0].output

    assert '{"r":[1.0E7,null],"q":{"a":null,"b":"x"},"m":{"z":1}}' == out.value


def test_filter_reads_headers():
    made = plan(left__filter="element_at(record_headers, 'a') = 'b'")
    lines = [json.dumps({"value": row(1, 0), "headers": {"a": text}}) for text in ("b", "c", None)]

    batch, *_ = run(made, lines, [row(1, 0)])

    reasons = ["fails left.filter", "left.filter is null"]
    assert reasons == [drop.reason for drop in batch.drops]


def test_row_that_can_match_no_row_by_the_other_sides_filter_is_not_held():
    made = plan(left__filter="k = 7")

    (batch, *_) = run(made, [row(7, 0), row(8, 0)], [row(7, 0), row(8, 0)])

    assert {"left": 1, "right": 1} == batch.state_rows
    assert ["fails left.filter", "cannot match"] == [drop.reason for drop in batch.drops]
