"""Lines of simulate's files and rows of `tests:`: values, whole records, and what is refused."""

import json

import pytest
from typer.testing import CliRunner

from job.__main__ import app
from job.plan.planner import join_plan
from job.semantics.cli import SimulationError, run_spec_tests, simulation_lines
from job.semantics.input_records import InputLineError, records_of_jsonl
from job.semantics.simulate import simulate
from job.semantics.spec_tests import SpecTest, run_spec_test
from job.spec.spec import spec_from_document
from tests.sql_worker import ROWS, SQL

T = 1_767_225_600_000
SENSORS = "key STRING, value DOUBLE, timestamp TIMESTAMP"


def document(schema=SENSORS, **changes):
    names = {part.split()[0] for part in schema.split(", ")}
    time = "timestamp" if "timestamp" in names else "at"
    side = {"schema": schema, "key": ["key"], "event_time": time, "watermark_delay": "1 second"}
    return {
        "name": "sensors",
        "kafka": {"bootstrap_servers": "localhost:9092"},
        "left": {"topic": "l", **side},
        "right": {"topic": "r", **side},
        "join": {"type": "inner", "match_window": {"before": "0 s", "after": "5 s"}},
        "output": {"topic": "o", "columns": {"k": "left.key", "v": "right.value"}},
        "checkpoint": "./checkpoint",
        "on_bad_record": "drop",
        **changes,
    }


def plan(schema=SENSORS, **changes):
    return join_plan(spec_from_document(document(schema, **changes)), SQL, state_partitions=1)


def line(**fields):
    return json.dumps(fields)


ROW = line(key="a", value=1.5, timestamp=T)


def read(text, schema=SENSORS):
    """What stands in a topic for a line of the file."""
    (record,) = records_of_jsonl([text], ROWS, plan(schema).left)
    return record.value


def test_row_whose_columns_are_named_as_the_fields_of_a_record_is_a_value():
    batches = simulate(
        plan(),
        ROWS,
        records_of_jsonl([ROW], ROWS, plan().left),
        records_of_jsonl([line(key="a", value=2.5, timestamp=T)], ROWS, plan().right),
    )

    assert ['{"k":"a","v":2.5}'] == [out.value for batch in batches for out in batch.output]


def test_such_a_row_of_a_spec_test_is_a_value_too():
    rows = {side: [json.loads(ROW)] for side in ("left", "right")}

    assert run_spec_test(plan(), ROWS, SpecTest("t", **rows, output=[{"k": "a", "v": 1.5}])).passed


@pytest.mark.parametrize(
    ("schema", "text"),
    [
        (SENSORS, ROW),
        (SENSORS, line(key="a", value=None, timestamp=T)),
        (SENSORS, line(key="a", value="1.5", timestamp=T)),
        (SENSORS, line(value=1.5, batch=2)),
        (SENSORS, line(value=[1], batch=2)),
        ("key STRING, value STRING, timestamp TIMESTAMP", line(key="a", value="x", timestamp=T)),
        ("key STRING, value STRUCT<x: INT>, timestamp TIMESTAMP", line(key="a", value={"x": 1})),
        ("key STRING, value INT, batch INT, at TIMESTAMP", line(key="a", value=1, batch=7, at=T)),
        ("key STRING, timestamp TIMESTAMP, value INT", line(offset=1)),
    ],
)
def test_line_that_can_only_be_a_value_is_one(schema, text):
    assert text == read(text, schema)


@pytest.mark.parametrize(
    ("schema", "text", "value"),
    [
        (SENSORS, line(value=json.loads(ROW), batch=1), ROW),
        (SENSORS, line(value=json.loads(ROW), key="x", timestamp=T), ROW),
        (SENSORS, line(record=True, value=None), None),
        (SENSORS, line(record=True, value="garbage", key="k"), "garbage"),
        ("key STRING, value STRING, at TIMESTAMP", line(value={"key": "a", "at": 1}), None),
        ("key STRING, value INT, at TIMESTAMP", line(value={"key": "a"}, offset=5), None),
    ],
)
def test_line_that_can_only_be_a_whole_record_is_one(schema, text, value):
    expected = value if "record" in text or value else json.dumps(json.loads(text)["value"])

    found = read(text, schema)

    assert (None if expected is None else expected.replace(" ", "")) == (
        None if found is None else found.replace(" ", "")
    )


@pytest.mark.parametrize(
    ("schema", "text"),
    [
        (SENSORS, line(value=None, batch=2)),
        (SENSORS, line(key="a", value="1.5", batch=2)),
        (
            "key STRING, value STRING, timestamp TIMESTAMP",
            line(key="a", value={"key": "b"}, timestamp=T),
        ),
    ],
)
def test_line_that_may_be_either_is_refused_with_the_way_to_write_it(schema, text):
    with pytest.raises(InputLineError, match=r'line 1: may be .* \{"record": true, "value": …\}'):
        read(text, schema)


def test_value_in_a_whole_record_keeps_its_numbers_as_written():
    assert '{"s":1.50,"n":1E400}' == read('{"value": {"s": 1.50, "n": 1E400}}', SENSORS)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"offset": "abc"}, r'`offset` must be a whole number, 0 or more \(written: "abc"\)'),
        ({"offset": None}, "`offset` must be a whole number"),
        ({"offset": -1}, "`offset` must be a whole number"),
        ({"partition": 1.5}, "`partition` must be a whole number"),
        ({"batch": "x"}, "`batch` must be a whole number"),
        ({"batch": [1]}, "`batch` must be a whole number"),
        ({"batch": True}, "`batch` must be a whole number"),
        ({"key": 5}, "`key` must be text or null"),
        ({"timestamp": "garbage"}, "`timestamp` must be epoch milliseconds or ISO-8601"),
        ({"timestamp": True}, "`timestamp` must be epoch milliseconds or ISO-8601"),
        ({"record": True, "ofset": 1}, "has the unknown field ofset"),
    ],
)
def test_bad_field_of_a_whole_record_is_named(fields, message):
    schema = "k INT, key STRING, at TIMESTAMP, value INT"

    with pytest.raises(InputLineError, match=rf"line 2: {message}"):
        records_of_jsonl(["", line(value={"k": 1}, **fields)], ROWS, plan(schema).left)


def test_line_with_the_mark_needs_a_value():
    with pytest.raises(InputLineError, match="needs `value` in its record"):
        read(line(record=True, batch=1))


def files(tmp_path, left, right=b""):
    for name, content in (("left", left), ("right", right)):
        (tmp_path / name).write_bytes(content)
    return tmp_path / "left", tmp_path / "right"


def test_only_a_newline_ends_a_line_of_a_file(tmp_path):
    texts = "\u2028\u2029\u0085"
    made = plan("key STRING, value STRING, timestamp TIMESTAMP")
    row = json.dumps({"key": "a", "value": f"x{texts}y", "timestamp": T}, ensure_ascii=False)

    lines = simulation_lines(made, ROWS, *files(tmp_path, f"{row}\r\n".encode(), row.encode()))

    assert any(f'"v":"x{texts}y"' in text for text in lines)


def test_control_character_in_a_line_is_one_malformed_record(tmp_path):
    broken = b'{"key":"a\x1c","value":1,"timestamp":1}\n'

    lines = list(simulation_lines(plan(), ROWS, *files(tmp_path, broken)))

    assert any("left: 1 dropped, malformed_json (0/0)" in text for text in lines)


def test_lone_surrogate_is_written_as_the_job_writes_it(tmp_path):
    made = plan("key STRING, value STRING, timestamp TIMESTAMP")
    row = b'{"key":"a","value":"\\ud800","timestamp":%d}' % T

    lines = simulation_lines(made, ROWS, *files(tmp_path, row, row), as_jsonl=True)

    assert ['{"k":"a","v":"?"}'] == list(lines)


@pytest.mark.parametrize("content", ['{"s":"é"}'.encode("latin-1"), ROW.encode("utf-16")])
def test_file_that_is_not_utf_8_is_named(tmp_path, content):
    with pytest.raises(SimulationError, match=r"left is not UTF-8 at byte .*: save it"):
        simulation_lines(plan(), ROWS, *files(tmp_path, content))


@pytest.mark.parametrize(
    ("trigger", "message"),
    [
        ("abc", "is not a duration"),
        ("0 seconds", "must be positive"),
        ("-5 seconds", "must be positive"),
        ("99999999999999999 weeks", "is longer than 100,000,000 days"),
    ],
)
def test_trigger_that_is_no_duration_is_refused(tmp_path, trigger, message):
    with pytest.raises(SimulationError, match=f"--trigger: {message}"):
        simulation_lines(plan(), ROWS, *files(tmp_path, b""), trigger=trigger)


@pytest.mark.parametrize("value", [b"bytes", {1, 2}, {"x": {3}}])
def test_yaml_value_that_json_has_not_is_refused_with_its_test_and_row(value):
    test = SpecTest("t", left=[{"key": "a"}, {"key": value}])

    with pytest.raises(
        SimulationError, match="test 't', left row 2: has a value that JSON does not support"
    ):
        run_spec_tests(plan(), ROWS, [test])


@pytest.mark.parametrize(
    ("expected", "passes"),
    [
        ({"b": True}, True),
        ({"b": 1}, False),
        ({"i": 1}, True),
        ({"i": 1.0}, True),
        ({"i": True}, False),
        ({"b": None}, False),
    ],
)
def test_true_is_not_one(expected, passes):
    made = plan(
        "key STRING, b BOOLEAN, i INT, at TIMESTAMP",
        output={"topic": "o", "columns": {"b": "left.b", "i": "left.i"}},
    )
    row = {"key": "a", "b": True, "i": 1, "at": T}

    assert passes is run_spec_test(made, ROWS, SpecTest("t", [row], [row], [expected])).passed


def test_rows_that_are_equal_only_in_python_differ():
    made = plan(
        "key STRING, b BOOLEAN, i INT, at TIMESTAMP",
        output={"topic": "o", "columns": {"x": "cast(left.i as boolean)", "i": "right.i"}},
    )
    left, right = ({"key": "a", "i": i, "at": T} for i in (1, 1))

    outcome = run_spec_test(made, ROWS, SpecTest("t", [left], [right], [{"x": True, "i": 1}]))

    assert outcome.passed


def test_spec_that_is_not_utf_8_is_refused_without_a_stack_trace(tmp_path):
    spec = tmp_path / "spec.yaml"
    spec.write_bytes("name: caf\u00e9\n".encode("latin-1"))

    result = CliRunner().invoke(app, ["validate", str(spec)])

    assert 2 == result.exit_code
    assert "is not text in UTF-8 (byte 9): save the file in UTF-8" in result.output


def test_misspelt_field_of_a_test_is_named_with_the_one_that_was_meant():
    changed = document(tests=[{"name": "a", "lefft": []}])

    with pytest.raises(Exception, match=r"tests\[0\]\.lefft: .*did you mean left\?"):
        spec_from_document(changed)
