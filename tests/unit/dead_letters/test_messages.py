"""Messages of dead letters, computed by Spark's expressions without a session."""

import pytest

from job.dead_letters import sql
from job.plan import record_sql
from job.plan.side_plan import SidePlan
from job.semantics.input_records import InputRecord
from job.semantics.simulated_side import RECORD, record_values
from tests.sql_worker import ROWS
from tests.unit.specs import plan

SIDE = plan(
    left__schema="k BIGINT, at TIMESTAMP, amt DECIMAL(10,2), w DECIMAL(38,10), "
    "s STRUCT<a: DECIMAL(5,2)>",
    left__key=["k"],
    left__event_time="at",
    output__columns={"amt": "left.amt"},
).left
"""`at` is its event time."""


def message(value: str, side: SidePlan = SIDE) -> str | None:
    """Of the dead letter of a value. None: the record is readable."""
    steps = [
        *record_sql.steps(side, record_sql.EXPLAINED),
        ["*", "reason AS dead_reason", "cast(NULL AS TIMESTAMP) AS late_watermark"],
        [f"CASE WHEN reason IS NOT NULL THEN {sql.message(side)} END AS said"],
    ]
    program = ROWS.program(RECORD, steps, ["said"])
    store = ROWS.store()
    [row] = ROWS.run(program, [record_values(InputRecord(value, 0))], keep_in=store)
    ROWS.drop(store)
    said: str | None = row["said"]
    return said


TOO_EARLY = "field at is {}, before min_event_time 1980-01-01T00:00:00Z"
BEYOND = "field at is not between min_event_time 1980-01-01T00:00:00Z and the year 9999: {}"
UNPARSABLE = (
    "field at is neither ISO-8601 (e.g. 2024-03-01T10:00:00Z, 2024-03-01T11:00+01:00 or "
    "20240301T100000Z) nor epoch milliseconds: {}"
)
IN_SECONDS = "; declare the column {} and write `event_time: timestamp_seconds(at)`"
IN_MICROS = "; declare the column BIGINT and write `event_time: timestamp_micros(at{})`"


@pytest.mark.parametrize(
    ("at", "wrong", "shown", "unit"),
    [
        ("1709287207", TOO_EARLY, "1970-01-20T18:48:07.207Z",
         ": as seconds it is 2024-03-01T10:00:07Z" + IN_SECONDS.format("BIGINT")),
        ("1709287207000000", BEYOND, "1709287207000000",
         ": as microseconds it is 2024-03-01T10:00:07Z" + IN_MICROS.format("")),
        ("1709287207000000000", BEYOND, "1709287207000000000",
         ": as nanoseconds it is 2024-03-01T10:00:07Z" + IN_MICROS.format(" div 1000")),
        ("1709287207.5", UNPARSABLE, "1.7092872075E9",
         ": as seconds it is 2024-03-01T10:00:07.5Z" + IN_SECONDS.format("DOUBLE")),
        ('"1970-01-20T18:48:07.207Z"', TOO_EARLY, "1970-01-20T18:48:07.207Z", ""),
        ("253402300800000", BEYOND, "253402300800000", ""),
        ('"soon"', UNPARSABLE, "soon", ""),
    ],
)  # fmt: skip
def test_message_of_a_bad_event_time_names_the_unit_in_which_it_is_plausible(
    at: str, wrong: str, shown: str, unit: str
) -> None:
    assert wrong.format(shown) + unit == message(f'{{"at": {at}}}')


def test_message_of_an_expression_names_the_function_to_write() -> None:
    side = plan(left__schema="ad_id BIGINT, ms BIGINT", left__event_time="timestamp_millis(ms)",
                output__columns={"ms": "left.ms"}).left  # fmt: skip
    wrong = TOO_EARLY.replace("field at", "event_time timestamp_millis(ms)")

    said = message('{"ms": 1709287207}', side)

    expected = ": as seconds it is 2024-03-01T10:00:07Z; write `event_time: timestamp_seconds(…)`"
    assert wrong.format("1970-01-20T18:48:07.207Z") + expected == said


DIGITS = " does not fit: at most {} digits before and {} after the point"
NO_NUMBER = " is not a plain number"


@pytest.mark.parametrize(
    ("column", "written", "why"),
    [
        ("amt", '"12.50"', None),
        ("amt", '"-0012.500"', None),
        ("amt", "12", None),
        ("amt", "1.25e3", None),
        ("amt", "12345678.25", None),
        ("amt", '"12,50"', "12,50" + NO_NUMBER),
        ("amt", '"1,250.00"', "1,250.00" + NO_NUMBER),
        ("amt", '""', NO_NUMBER),
        ("amt", "0.004", "0.004" + DIGITS.format(8, 2)),
        ("amt", '"0.999"', "0.999" + DIGITS.format(8, 2)),
        ("amt", "1e-3", "0.001" + DIGITS.format(8, 2)),
        ("amt", "1E-400", "1E-400" + DIGITS.format(8, 2)),
        ("amt", "1E400", "1E400" + DIGITS.format(8, 2)),
        ("amt", "12.500000000000000001", "12.500000000000000001" + DIGITS.format(8, 2)),
        ("amt", "123456789", "123456789" + DIGITS.format(8, 2)),
        ("w", "1e23", None),
        ("w", f"{'1' * 28}.{'1' * 10}", None),
        ("w", f"{'1' * 28}.{'1' * 11}", f"{'1' * 28}.{'1' * 11}" + DIGITS.format(28, 10)),
        ("s", '{"a": 1.5}', None),
        ("s", '{"a": null}', None),
    ],
)  # fmt: skip
def test_decimal_has_exactly_the_written_value_or_the_message_says_why(
    column: str, written: str, why: str | None
) -> None:
    kind = SIDE.schema.column(column)
    said = message(f'{{"at": 1709287207000, "{column}": {written}}}')

    assert kind is not None
    expected = f"not of the declared type: {column} {kind.type} ({why})"
    assert (None if why is None else expected) == said


WITH_ID = (
    "the value begins with the id of a schema of a registry: `format: json_schema`, avro or "
    "protobuf read such values"
)


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (
            '{"at": 1709287207000, "s": {"a": 0.001}}',
            "not of the declared type: s STRUCT<a: DECIMAL(5,2)>",
        ),
        ("\0\0\0\0\1{}", WITH_ID),
        ("\0{}", "the value is not one JSON object in UTF-8"),
    ],
)
def test_message_names_what_the_value_is(value: str, said: str) -> None:
    assert said == message(value)


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ('{"k": 1}', "the value is no envelope of Debezium with a known `op`"),
        ('{"op": "c", "after": null}', "the envelope of the operation create has no row"),
        (
            '{"op": "d", "before": {"at": 1709287207000}}',
            (
                "the deleted row in `before` has no value of the key (k): let the database log the "
                "whole row, e.g. with REPLICA IDENTITY FULL"
            ),
        ),
        ('{"op": "c", "after": {"k": "x"}}', "not of the declared type: k BIGINT"),
    ],
)
def test_message_of_an_envelope_names_what_is_missing(value: str, said: str) -> None:
    side = plan(
        left__envelope="debezium",
        left__operations=["create", "delete"],
        left__schema="k BIGINT, at TIMESTAMP",
        left__key=["k"],
        left__event_time="at",
        output__columns={"k": "left.k"},
    ).left

    assert said == message(value, side)


def test_text_of_any_length_is_no_time_within_a_second() -> None:
    """A pattern that tries each position of a text would take minutes."""
    for text in ("2024-03-01" + "T" * 200_000, "2024-03-01 " + "hello " * 40_000):
        said = message(f'{{"k": 1, "at": "{text}"}}')

        assert said is not None
        assert said.startswith("field at is neither ISO-8601")
