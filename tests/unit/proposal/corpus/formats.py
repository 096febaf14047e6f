"""Values in CSV and text, and JSON behind the id of a schema."""

import json

from tests.unit.proposal.corpus.case import ID, Case, Value, iso, mixed, ms, raw_topic, topic, uuid

PAYMENTS = topic("payments", lambda n: {"order_id": 500 + n, "at": iso(n, 2)}, late=2)
HEADER = b"order_no;record_key;price;at"
SCHEMA = {
    "type": "object",
    "properties": {
        "id": {"type": "integer"},
        "coupon": {"oneOf": [{"type": "null"}, {"type": "string"}]},
        "rating": {"type": ["null", "number"]},
        "tags": {"type": "array", "items": {"type": "string"}},
        "ship": {"type": "object", "properties": {"fast": {"type": "boolean"}}},
        "either": {"oneOf": [{"type": "integer"}, {"type": "string"}]},
    },
}


def with_id(value: Value) -> bytes:
    return ID + json.dumps(value).encode()


CASES = [
    Case(
        "JSON behind the id of a schema, without a registry",
        raw_topic("orders", lambda n: with_id({"id": 500 + n, "at": iso(n)})),
        PAYMENTS,
        ("id", "order_id"),
        comments=(
            "  format: json_schema\n  schema: id BIGINT, at TIMESTAMP\n",
            "# The values are JSON behind the id of a schema (129 in the newest record).",
        ),
    ),
    Case(
        "JSON behind the id of a schema with columns that the sample does not show",
        raw_topic("orders", lambda n: with_id({"id": 500 + n, "at": iso(n), "coupon": None})),
        raw_topic("payments", lambda n: with_id({"order_id": 500 + n, "at": iso(n, 2)}), late=2),
        ("id", "order_id"),
        registered=SCHEMA,
        comments=("coupon STRING, rating DOUBLE, tags ARRAY<STRING>, ship STRUCT<fast: BOOLEAN>",),
    ),
    Case(
        "CSV with semicolons",
        raw_topic("orders", lambda n: f"{500 + n};{1.5 + n};new, {n};{iso(n)}".encode()),
        PAYMENTS,
        ("column_1", "order_id"),
        ("column_4", "at"),
        comments=(
            '  format: csv\n  csv: {delimiter: ";"}\n',
            "schema: column_1 BIGINT, column_2 DOUBLE, column_3 STRING, column_4 TIMESTAMP\n",
            '20 of 20 values are no JSON, and have 4 fields between ";"',
            "CSV has no names: rename column_1 and so on",
        ),
    ),
    Case(
        "CSV with names in the first record, one of them reserved, nulls and quotes",
        raw_topic(
            "orders",
            lambda n: f'{499 + n};"a ""b"" {n}";\\N;{ms(n - 1)}\r\n'.encode() if n else HEADER,
        ),
        PAYMENTS,
        ("order_no", "order_id"),
        results=19,
        comments=(
            'csv: {delimiter: ";", null_value: "\\\\N"}',
            "schema: order_no BIGINT, column_2 STRING, price STRING, at TIMESTAMP\n",
            "# The first record of the topic has the names. It is a bad record.",
        ),
    ),
    Case(
        "CSV on both sides, with texts that are long and times of a zone",
        raw_topic("l", lambda n: f"{uuid(n)},{n % 3},{iso(n, 7_200)[:-1]}".encode()),
        raw_topic("r", lambda n: f"{iso(mixed(n), 2)},x,{uuid(mixed(n))}".encode(), late=20),
        ("column_1", "column_3"),
        ("column_3", "column_1"),
        comments=("  format: csv\n  schema: ", 'time_zone: "+02:00"'),
    ),
    Case(
        "text with words, the record key as key",
        raw_topic(
            "log",
            lambda n: f"{iso(n)} INFO order {n % 2} was, perhaps, placed".encode(),
            lambda n: b"%d" % (500 + n),
        ),
        PAYMENTS,
        ("record_key", "cast(order_id AS STRING)"),
        ("cast(split(value, ' ')[0] AS TIMESTAMP)", "at"),
        comments=("  format: text\n", "neither JSON objects nor CSV", "split(value, ' ')[0]"),
    ),
    Case(
        "text with times as Java writes them, without seconds in full minutes",
        raw_topic(
            "log",
            lambda n: f"{iso(n) if n % 4 else iso(0)[:16] + 'Z'} INFO placed".encode(),
            lambda n: b"%d" % (500 + n),
        ),
        PAYMENTS,
        ("record_key", "cast(order_id AS STRING)"),
        (
            (
                "coalesce(try_cast(split(value, ' ')[0] AS TIMESTAMP), "
                """try_to_timestamp(split(value, ' ')[0], "yyyy-MM-dd'T'HH:mmXXX"))"""
            ),
            "at",
        ),
        after="1 minute",
    ),
    Case(
        "text with times that no expression of a proposal reads",
        raw_topic(
            "log",
            lambda n: f"{iso(n)}[Europe/London] INFO placed".encode(),
            lambda n: b"%d" % (500 + n),
        ),
        PAYMENTS,
        ("record_key", "cast(order_id AS STRING)"),
        ("record_timestamp", "at"),
    ),
    Case(
        "text with the key in a word",
        raw_topic("log", lambda n: f"placed {uuid(n)} {'x ' * (n % 3)}end".encode()),
        topic("payments", lambda n: {"order_id": uuid(n), "at": iso(n, 2)}, late=2),
        ("split(value, ' ')[1]", "order_id"),
        ("record_timestamp", "at"),
    ),
    Case(
        "text that is the key",
        raw_topic("blocked", lambda n: uuid(n).encode()),
        topic("logins", lambda n: {"user": uuid(n), "at": iso(n, 2)}, late=2),
        ("value", "user"),
        ("record_timestamp", "at"),
    ),
]
