"""No record fails the job or a simulation: each has columns or a reason, the same in both."""

import re
from datetime import UTC, datetime

from pyspark.sql import SparkSession

from job.dataflow.sides import decoded
from job.plan.plan import JoinPlan
from job.plan.side_plan import SidePlan
from job.semantics.input_records import InputRecord
from job.semantics.simulated_side import BadRecord, OtherRecord, SideReader
from tests.sql_worker import ROWS
from tests.unit.specs import plan

AT = '"t":1767225600000'
SCHEMA = (
    "s STRING, t TIMESTAMP, at TIMESTAMP, i INT, n BIGINT, y TINYINT, b BOOLEAN, f FLOAT, "
    "x DOUBLE, d DECIMAL(10,2), w DECIMAL(38,10), bin BINARY, day DATE, a ARRAY<INT>, "
    "m MAP<STRING, INT>, st STRUCT<a: INT, `B c`: STRING, in: STRUCT<x: DOUBLE>>"
)
VALUES = [
    'true', 'null', '[]', '{}', '[1, null]', '["x"]', '{"a":1,"a":2}', '{"a":"x","in":{"x":1e7}}',
    '0', '-0', '-0.0', '1.50', '1E-5', '1e22', '1e400', '-1e-400', '1e2147483648', '01', '+1', '1.',
    '128', '-2147483649', '16777217', '9007199254740993', '9223372036854775808', '4.9e-324',
    '3.4028235677973366e38', '1.7976931348623159e308', '99999999.995', '123456789012345678901.5',
    'NaN', '-Infinity', '""', '" "', '"1"', '"1,0"', '"1e2"', '"NaN"', '"+INF"', '"-0044-03-15"',
    '"AAH/\\n"', '"AA==AA=="', '"A="', '"\\ud800"', '"\\ud83d\\ude00"', '"\\u0000"', '"\\x"',
    '"\U0001f600\u2028\x85"', '"0001-01-01T00:00:00+18:00"', '"+294247-01-01T00:00:00Z"',
    '"2026-02-29"', '"2026-1-1"', '"2026-01-01T24:00:00"', '"2026-01-01T00:00:00.1234567891234Z"',
    '"2026-01-01T00:00:00+18:01"', '"2026-01-01T00:00:00 bar"', '"2026-01-01T00:00:00UTC+1"',
    '"1969-12-31T23:59:59.999999Z"', '"10000-01-01"', '"\uff12\uff10\uff12\uff16-01-01"', '"now"',
    '253402300799999', '"253402300800000"', '-62135596800001',
]  # fmt: skip
DOCUMENTS = [
    '', ' ', '{', '{}', '[]', '5', '{@', '{@,}', '\t\n{@}\r', '\xa0{@}', '\ufeff{@}', '{@}\x00',
    '{@}{@}', '{@}\n{@}', '{@}}', '{@}x', '{@} "}', '[{@}]', '{@/* */}', "{'t':1}", '{t:1}',
    '{@,"s":"a\nb"}', '{@,"s":"} {"}', '{@,"t":null}', '{@,"i":"x","i":2}', '{"T":1767225600000}',
    '{@,"s":"\\u12"}', '{@,"i":"x"}{}', '{@,"i":"x"', '{"t":"nope","at":"x"}', '{@,"z":[1,]}',
]  # fmt: skip
# At Jackson's limits and above: digits, length of a name, depth.
LIMITS = [
    *(f'{{@,"{name}":{"1" * n}}}' for name in ("i", "x", "d", "at", "z") for n in (1_000, 1_001)),
    *(f'{{@,"{"a" * n}":1}}' for n in (50_000, 50_001)),
    *(f'{{@,"{name}":{"[" * n}{"]" * n}}}' for name in ("i", "s", "z") for n in (999, 1_000)),
    "[" * 2_000,
]
BYTES = [b"\xff", b"", *(b'{"t":1,"s":"%b"}' % x for x in (b"\xc3", b"\xed\xa0\x80", b"\xc0\x80"))]

RECORDS = (
    "key BINARY, value BINARY, topic STRING, partition INT, offset BIGINT, timestamp TIMESTAMP, "
    "headers ARRAY<STRUCT<key: STRING, value: BINARY>>"
)

OPTIONS = "map('timestampFormat', \"yyyy-MM-dd'T'HH:mm:ss.SSS'Z'\", 'ignoreNullFields', 'false')"


def of_job(spark: SparkSession, side: SidePlan, values: list[bytes | None]) -> list[object]:
    """Reason of each record, or its event time in microseconds and its columns as output JSON."""
    at = datetime(2026, 1, 1, tzinfo=UTC)
    rows = [(None, value, "t", 0, offset, at, None) for offset, value in enumerate(values)]
    columns = ", ".join(f"'{name}', `left_{name}`" for name in side.schema.names)
    found = decoded(spark.createDataFrame(rows, RECORDS), side, None).selectExpr(
        "reason",
        f"unix_micros(`{side.event_time_column}`)",
        f"to_json(named_struct({columns}), {OPTIONS})",
    )
    return [reason or (micros, micros and text) for reason, micros, text in found.collect()]


def of_simulator(made: JoinPlan, values: list[bytes | None]) -> list[object]:
    """The same, with the expressions of a process without a Spark session."""
    records = [InputRecord(value, offset) for offset, value in enumerate(values)]
    reader = SideReader(made, "left", ROWS)
    columns = ", ".join(f"'{name}', `left_{name}`" for name in made.left.schema.names)
    text = f"to_json(named_struct({columns}), {OPTIONS})"
    other = SideReader(made, "right", ROWS)
    program = ROWS.program((reader.program, other.program), [[f"{text} AS text"]], ["text"])
    found: list[object] = []
    for row in reader.read(records):
        if isinstance(row, BadRecord):
            found.append(row.reason)
        elif isinstance(row, OtherRecord):
            found.append((None, None))
        else:
            [answer] = ROWS.run_pairs(program, [(row.number, None)], (reader.store, other.store))
            found.append((row.event_time_us, answer["text"]))
    return found


def test_job_and_simulator_read_the_same_columns_or_the_same_reason(spark: SparkSession) -> None:
    documents = [text.replace("@", AT) for text in (*DOCUMENTS, *LIMITS)]
    columns = [*re.findall(r"(\w+) [A-Z]+(?:\(.*?\)|<.*?>+)?(?:, |$)", SCHEMA), "z"]
    documents += [f'{{{AT},"{name}":{value}}}' for name in columns for value in VALUES]
    rows = [text.encode("utf-8", "surrogatepass") for text in documents]
    rows += [text.encode(name) for name in ("utf-16", "utf-32") for text in ("{}", f"{{{AT}}}")]
    rows += BYTES
    wrapped = [
        *(b'{"op":"c","source":{"ts_ms":1},"after":' + row + b"}" for row in rows),
        *(b'{"payload":{"op":"d","before":' + row + b"}}" for row in rows[::3]),
    ]
    plain = {"left__schema": SCHEMA, "left__key": ["s"], "right__key": ["user"]}
    plain |= {"left__event_time": "t", "output__columns": {"s": "left.s"}}
    plain |= {"left__max_event_time_ahead": "10000000 days"}
    in_envelopes = {
        "left__envelope": "debezium",
        "left__operations": ["create", "delete"],
        "left__filter": "i IS NULL OR i > 0",
        "left__columns": {"fails": "1 / (i - 1)", "op": "upper(record_operation)"},
        "left__event_time": "coalesce(t, record_source_timestamp)",
    }

    for values, changes in (([*rows, None], plain), (wrapped, plain | in_envelopes)):
        made = plan(**changes)
        job, simulated = of_job(spark, made.left, values), of_simulator(made, values)

        pairs = zip(values, job, simulated, strict=True)
        assert [] == [(value and value[:80], a, b) for value, a, b in pairs if a != b]
        assert {"schema_mismatch", "malformed_json", "absurd_event_time"} < set(map(str, job))
