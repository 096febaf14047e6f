"""Values of each format, read by the SQL of the job in Spark's own expressions."""

import base64
import json

import pytest

from job.dead_letters import sql as dead_letter_sql
from job.errors import SpecError
from job.plan import record_sql
from job.plan.explain import plan_as_json
from job.plan.side_plan import SidePlan
from job.semantics.input_records import records_of_jsonl
from job.semantics.simulate import simulate
from job.spec.expressions import column_name
from tests.sql_worker import ROWS
from tests.unit.specs import plan

AT = "2026-01-01T00:00:00Z"
OK, MISMATCH = None, "schema_mismatch"
RECORD = (
    "key BINARY, value BINARY, topic STRING, partition INT, offset BIGINT, timestamp TIMESTAMP, "
    "headers ARRAY<STRUCT<key: STRING, value: BINARY>>"
)


def read(
    side: SidePlan, *values: bytes | str | None, key: bytes | None = None
) -> list[dict[str, str | None]]:
    """The columns of each value as text, with `reason` and the `message` of a dead letter."""
    late = "cast(NULL AS TIMESTAMP) AS late_watermark"
    steps = [
        *record_sql.steps(side, keep=record_sql.EXPLAINED),
        ["*", "reason AS dead_reason", late],
    ]
    names = [*side.schema.names, "record_key"]
    last = [
        *(f"cast(`{column_name(side.side, name)}` AS STRING) AS `{name}`" for name in names),
        "reason",
        f"{dead_letter_sql.message(side)} AS message",
    ]
    program = ROWS.program(RECORD, [*steps, last], [*names, "reason", "message"])
    rows = [[_base64(key), _base64(value), "t", 0, 0, None, []] for value in values]
    return ROWS.run(program, rows, keep_in=ROWS.store())


def _base64(value: bytes | str | None) -> str | None:
    content = value.encode() if isinstance(value, str) else value
    return None if content is None else base64.b64encode(content).decode()


def csv_side(schema: str = "ad_id BIGINT, shown_at TIMESTAMP, s STRING", **settings: str):
    return plan(
        left__format="csv",
        left__schema=schema,
        left__csv=settings,
        output__columns={"ad_id": "left.ad_id"},
    ).left


def reasons(side: SidePlan, *values: bytes | str | None) -> list[str | None]:
    return [row["reason"] for row in read(side, *values)]


def test_csv_fields_become_the_columns_of_the_schema_in_order() -> None:
    [row] = read(csv_side(), f'1,{AT}," a, ""b"""\r\n')

    assert ("1", "2026-01-01 00:00:00", ' a, "b"') == (row["ad_id"], row["shown_at"], row["s"])


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (f"1,{AT},#x", OK),
        (f"1,{AT},", OK),
        (f"1,{AT}", MISMATCH),
        (f"1,{AT},x,", MISMATCH),
        (f"1,{AT},x\n2,{AT},y", MISMATCH),
        (f"1,{AT},x\ry", MISMATCH),
        (f'1,{AT},"x\ny"', MISMATCH),
        (f'1,{AT},"x', MISMATCH),
        (f'1,{AT},"x"y"', MISMATCH),
        (f'1,{AT},"x" ', MISMATCH),
        (f'1,{AT},"x"\u2028', MISMATCH),
        (f'1,{AT},"x\\"y"', MISMATCH),
        (f'1,{AT},5" pipe', OK),
        ("", MISMATCH),
        ("," * 30_000, MISMATCH),
        (f'1,{AT},"{"," * 10_000}{"x" * 10_000}"', OK),
        (f"1,{AT},".encode() + b"\xff", "undecodable_value"),
        (f"1,,{AT}", "missing_event_time"),
        (f"1,now,{AT}", "unparsable_event_time"),
        (None, "tombstone"),
    ],
)
def test_csv_value_with_other_lines_fields_or_quotes_is_a_bad_record(
    value: bytes | str | None, reason: str | None
) -> None:
    assert [reason] == reasons(csv_side(), value)


@pytest.mark.parametrize(
    ("kind", "good", "bad"),
    [
        ("TINYINT", ["127", " 5 ", "-1"], ["128", "1.0", "1e1", "x"]),
        ("BIGINT", ["+7"], ["1,250", "1_000", "١٢", "9223372036854775808"]),
        ("DOUBLE", ["1.5", "-1e3", "5."], ["1d", "0x1p3", "NaN", "Infinity", "1e400", "12,50"]),
        ("DECIMAL(5,2)", ["125.50", "1.2300", " 7", "1e1"], ["1.255", "1,250", "1000", "١٢", "-"]),
        ("DECIMAL(3,0)", ["12", "12.0"], ["12.5"]),
        ("BOOLEAN", ["true", "FALSE"], ["1", "t", "yes"]),
        ("DATE", ["2026-01-31"], ["2026", "2026-01-31T12:00", "2026-02-30", "31.01.2026"]),
        ("TIMESTAMP", [AT, "1767225600000"], ["12:00", "now", "x"]),
    ],
)
def test_csv_text_that_is_no_plain_value_of_its_type_is_a_bad_record(
    kind: str, good: list[str], bad: list[str]
) -> None:
    side = csv_side(f"ad_id BIGINT, shown_at TIMESTAMP, x {kind}")
    rows = read(side, *(f'1,{AT},"{text}"' for text in [*good, *bad]))

    assert [OK] * len(good) + [MISMATCH] * len(bad) == [row["reason"] for row in rows]
    assert None not in [row["x"] for row in rows[: len(good)]]
    for row in rows[len(good) :]:
        assert str(row["message"]).startswith(f"not of the declared type: x {kind}")


def test_message_of_a_csv_value_that_is_broken_as_a_whole_says_how_many_fields_it_needs() -> None:
    [row] = read(csv_side(), "1,2")

    assert row["message"] == (
        "the value is not one line with 3 fields, or a quote in it is not escaped"
    )


def test_filter_drops_no_csv_value_that_is_broken_as_a_whole() -> None:
    side = plan(left__format="csv", left__filter="campaign = 'y' AND campaign IS NOT NULL").left

    assert [OK, MISMATCH, MISMATCH] == reasons(
        side, f"x,{AT},x,", f"1,{AT},x,\n2,{AT},y,", f"1,{AT},x,,,"
    )


def test_csv_settings_choose_delimiter_quote_escape_and_null() -> None:
    side = csv_side(delimiter="\t", quote="'", escape="\\", null_value="\\N")
    rows = read(side, f"\\N\t{AT}\t'a\\'b,\tc'", f"1\t{AT}\t''", f"1\t{AT}\t", f"1\t{AT}\t\\N")

    assert [OK] * 4 == [row["reason"] for row in rows]
    assert rows[0]["ad_id"] is None
    assert ["a'b,\tc", "", None, None] == [row["s"] for row in rows]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"delimiter": ";;"}, "left.csv.delimiter: must be one character"),
        ({"quote": ""}, "left.csv.quote: must be one character"),
        ({"delimiter": "\n"}, "left.csv.delimiter: must be one character"),
        ({"delimiter": "\\"}, "left.csv: has the delimiter \\"),
        ({"delimiter": '"'}, 'left.csv: has the delimiter "'),
        ({"null_value": "a\nb"}, "left.csv.null_value: must not contain a line break"),
    ],
)
def test_csv_settings_that_no_reader_could_use_are_refused(
    settings: dict[str, str], message: str
) -> None:
    with pytest.raises(SpecError) as refused:
        csv_side(**settings)

    assert str(refused.value).startswith(message)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"left__csv": {}}, "left: has `csv` and format json"),
        ({"left__format": "csv", "left__schema": None}, "left: has no `schema`, which csv requ"),
        ({"left__format": "csv", "left__subject": "x"}, "left: has a subject, which csv does not"),
        ({"left__format": "text"}, "left.schema: must be `value STRING` with format text"),
        (
            {"left__format": "csv", "left__schema": "shown_at TIMESTAMP, a ARRAY<INT>"},
            "left.schema: has ARRAY, which a CSV field cannot contain: declare the column STRING",
        ),
    ],
)
def test_fields_of_another_format_are_refused(changes: dict[str, object], message: str) -> None:
    with pytest.raises(SpecError) as refused:
        plan(**changes)

    assert str(refused.value).startswith(message)


FORMS = (
    *("2024-03-01T10:00:00", "2024-03-01 10:00:00Z", "2024-03-01T10:00Z", "20240301T100000Z"),
    *("2024-03-01T10:00:00,000Z", "2024-03-01t10:00:00z", "2024-03-01T11:00:00+0100"),
    *("2024-03-01T11:00:00+01:00[Europe/Berlin]", "1709287200000"),
)
"""One time, in forms of a TIMESTAMP."""
NESTED = "at STRUCT<d: STRUCT<t: TIMESTAMP, n: DECIMAL(5,2)>, l: ARRAY<TIMESTAMP>, "
NESTED += "m: MAP<STRING, TIMESTAMP>>"


def nested_side(**changes: object) -> SidePlan:
    changes = {"key": ["ad_id"], "schema": f"ad_id BIGINT, {NESTED}", **changes}
    return plan(
        **{f"left__{name}": value for name, value in changes.items()},
        left__event_time="at.d.t",
        output__columns={"ad_id": "left.ad_id"},
    ).left


@pytest.mark.parametrize("envelope", [None, "debezium"])
def test_timestamp_inside_an_object_has_the_forms_of_a_timestamp_column(
    envelope: str | None,
) -> None:
    def value(text: str | int) -> str:
        at = {"d": {"t": text, "n": 1.50}, "l": [text, None], "m": {"k": text}}
        row = {"ad_id": 1, "at": at}
        return json.dumps(row if envelope is None else {"op": "c", "before": None, "after": row})

    side = nested_side() if envelope is None else nested_side(envelope=envelope)
    rows = read(side, *map(value, [*FORMS, 1_709_287_200_000]))

    assert {OK} == {row["reason"] for row in rows}
    time = "2024-03-01 10:00:00"
    assert {f"{{{{{time}, 1.50}}, [{time}, null], {{k -> {time}}}}}"} == {row["at"] for row in rows}


def test_timestamp_inside_an_object_is_a_time_of_the_side() -> None:
    value = '{"ad_id": 1, "at": {"d": {"t": "2024-03-01 10:00"}}}'
    [row] = read(nested_side(time_zone="+08:00"), value)

    assert "{{2024-03-01 02:00:00, null}, null, null}" == row["at"]


@pytest.mark.parametrize(
    ("at", "reason"),
    [
        ('{"d": {"t": "12:00"}}', MISMATCH),
        (f'{{"d": {{"t": "{AT}"}}, "l": ["now"]}}', MISMATCH),
        (f'{{"d": {{"t": "{AT}"}}, "m": {{"k": true}}}}', MISMATCH),
        (f'{{"d": {{"t": "{AT}", "n": 0.001}}}}', MISMATCH),
        (f'{{"d": {{"t": "{AT}"}}, "l": [null], "m": {{"k": null}}}}', OK),
        ('{"d": {"t": null}}', "missing_event_time"),
        ("null", "missing_event_time"),
        ('{"d": {"t": 1709287200}}', "absurd_event_time"),
    ],
)
def test_text_that_is_no_time_inside_an_object_is_a_bad_record(at: str, reason: str | None) -> None:
    [row] = read(nested_side(), f'{{"ad_id": 1, "at": {at}}}')

    assert reason == row["reason"]
    if reason == MISMATCH:
        assert f"not of the declared type: {NESTED}" == row["message"]


def test_json_schema_is_json_after_the_id_of_a_schema() -> None:
    side = plan(left__format="json_schema").left
    text = f'{{"ad_id": 7, "shown_at": "{AT}", "campaign": 1.50}}'.encode()
    no_json = b"\0\0\0\0\1[]"
    rows = read(side, b"\0\0\0\0\1" + text, text, b"\0\0\0\1", b"", no_json, None)

    assert ("7", "1.50") == (rows[0]["ad_id"], rows[0]["campaign"])
    bad = "undecodable_value"
    assert [OK, bad, bad, bad, "malformed_json", "tombstone"] == [row["reason"] for row in rows]
    message = "the value does not begin with a byte 0 and the 4 of a schema's id"
    assert message == rows[1]["message"]


def test_json_schema_needs_no_registry_and_is_for_inputs_only() -> None:
    registry = {"url": "http://localhost:8081"}
    assert plan(left__format="json_schema", schema_registry=registry).left.reader is None
    for changes, message in (
        ({"output__format": "json_schema"}, "output.format: is a format of inputs only"),
        (
            {"left__format": "json_schema", "left__schema": None},
            "left: has no `schema`, which json_s",
        ),
        ({"schema_registry": registry}, "the file: has a schema_registry that no side"),
    ):
        with pytest.raises(SpecError) as refused:
            plan(**changes)
        assert str(refused.value).startswith(message)


def test_simulation_reads_json_schema_as_json() -> None:
    made = plan(left__format="json_schema")
    left = records_of_jsonl([f'{{"ad_id": 7, "shown_at": "{AT}", "cost": 1}}'], ROWS, made.left)
    right = records_of_jsonl([f'{{"ad_id": 7, "clicked_at": "{AT}"}}'], ROWS, made.right)
    [batch, *_] = simulate(made, ROWS, left, right)

    assert ['{"ad_id":7,"cost":1.0,"user":null}'] == [record.value for record in batch.output]


def text_plan(schema: str | None = None):
    return plan(
        left__format="text",
        left__schema=schema,
        left__key=["value"],
        left__event_time="record_timestamp",
        right__key=["user"],
        output__columns={"value": "left.value", "user": "right.user"},
    )


def test_text_is_one_column_with_the_whole_value() -> None:
    side = text_plan().left
    rows = read(side, '{"a": 1}\n', "", b"a\xff", None)

    assert ['{"a": 1}\n', ""] == [row["value"] for row in rows[:2]]
    assert ["undecodable_value", "tombstone"] == [row["reason"] for row in rows[2:]]
    assert rows[2]["message"] == "the value is not text in UTF-8"
    assert side.schema == text_plan("value STRING").left.schema


def test_simulation_reads_csv_and_text_of_json_strings_envelopes_and_lines() -> None:
    made = text_plan()
    lines = ['"a, b"', '{"value": "c", "timestamp": 1767225600000}', "d, e", '{"x": 1}']
    records = records_of_jsonl(lines, ROWS, made.left)

    assert ["a, b", "c", "d, e", '{"x": 1}'] == [record.value for record in records]


def test_simulation_joins_csv_with_text() -> None:
    made = plan(
        left__format="csv",
        left__csv={"delimiter": ";"},
        right__format="text",
        right__schema=None,
        right__key=["cast(value AS BIGINT)"],
        right__event_time="record_timestamp",
        output__columns={"campaign": "left.campaign", "value": "right.value"},
    )
    left = records_of_jsonl([f"7;{AT};spring;0.5", "7;x"], ROWS, made.left)
    right = records_of_jsonl([f'{{"value": "7", "timestamp": "{AT}"}}'], ROWS, made.right)
    [batch, *_] = simulate(made, ROWS, left, right)

    assert ['{"campaign":"spring","value":"7"}'] == [record.value for record in batch.output]
    assert ["schema_mismatch"] == [drop.reason for drop in batch.drops]


def test_plan_names_the_format_and_its_settings() -> None:
    made = plan(left__format="csv", left__csv={"delimiter": ";"})

    csv = {"delimiter": ";", "quote": '"', "escape": '"', "null_value": ""}
    assert plan_as_json(made)["values"] == {
        "left": {"format": "csv", "csv": csv},
        "right": {"format": "json"},
    }
