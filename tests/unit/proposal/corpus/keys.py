"""Keys in nested fields, in the record key and of two parts."""

import json

from tests.unit.proposal.corpus.case import ID, Case, iso, mixed, ms, raw_topic, topic, uuid

CASES = [
    Case(
        "record keys are the key of values without ids",
        topic("x.l", lambda n: {"a": n % 3, "at": iso(n)}, key=lambda n: f"k{n}"),
        topic("x.r", lambda n: {"b": n % 4, "at": iso(n, 2)}, key=lambda n: f"k{n}", late=2),
        ("record_key", "record_key"),
    ),
    Case(
        "record key of one side is a number of the other",
        topic("orders", lambda n: {"amount": 1.5, "at": iso(n)}, key=lambda n: str(100_200 + n)),
        topic("payments", lambda n: {"order_id": 100_200 + n, "at": iso(n, 2)}, late=2),
        ("record_key", "cast(order_id AS STRING)"),
    ),
    Case(
        "column is preferred to the record key that repeats it",
        topic("orders", lambda n: {"id": uuid(n), "at": iso(n)}, key=uuid),
        topic("payments", lambda n: {"order_id": uuid(n), "at": iso(n, 2)}, key=uuid, late=2),
        ("id", "order_id"),
    ),
    Case(
        "columns that identify a row only together",
        topic("x.l", lambda n: {"region": "ns"[n // 10], "no": n % 10, "at": iso(n)}),
        topic("x.r", lambda n: {"region": "ns"[n // 10], "no": n % 10, "at": iso(n, 2)}, late=2),
        ("region, no", "region, no"),
        comments=("#   no = no: 10 shared values, 40 pairs of rows",),
    ),
    Case(
        "pair of nested columns with other names",
        topic("sales", lambda n: {"shop": {"code": f"s{n % 4}"}, "no": n // 4, "at": iso(n)}),
        topic(
            "refunds",
            lambda n: {"shop_code": f"s{n % 4}", "sale": {"no": n // 4}, "at": iso(n, 2)},
            late=2,
        ),
        ("shop.code, no", "shop_code, sale.no"),
    ),
    Case(
        "nested field",
        topic("clicks", lambda n: {"user": {"id": f"u{n:03}"}, "at": iso(n)}),
        topic("views", lambda n: {"user": {"id": f"u{n:03}"}, "at": iso(n, 2)}, late=2),
        ("user.id", "user.id"),
    ),
    Case(
        "nested field in camelCase and a column in snake_case, days apart",
        topic("signups", lambda n: {"user": {"userId": uuid(n)}, "createdAt": iso(n)}),
        topic("orders", lambda n: {"user_id": uuid(n), "at": iso(n, 86_400)}, late=86_400),
        ("user.userId", "user_id"),
        ("createdAt", "at"),
        after="2 days",
    ),
    Case(
        "payload of Kafka Connect",
        topic("c.l", lambda n: {"schema": {"type": "struct"}, "payload": {"id": n, "at": ms(n)}}),
        topic(
            "c.r",
            lambda n: {"schema": {"type": "struct"}, "payload": {"id": n, "at": ms(n, 2)}},
            late=2,
        ),
        ("payload.id", "payload.id"),
        ("timestamp_millis(payload.at)", "timestamp_millis(payload.at)"),
        comments=("# not in the schema: the member `schema` of Kafka Connect",),
    ),
    Case(
        "names that SQL reads in backquotes",
        topic("l", lambda n: {"trace.id": uuid(n), "@timestamp": iso(n)}),
        topic("r", lambda n: {"trace": {"trace id": uuid(n)}, "@timestamp": iso(n, 2)}, late=2),
        ("`trace.id`", "trace.`trace id`"),
        ("`@timestamp`", "`@timestamp`"),
    ),
    Case(
        "one row of the left side has several partners",
        topic("orders", lambda n: {"id": 500 + n, "country": "DE", "at": iso(3 * n)}),
        topic(
            "order_lines",
            lambda n: {"order_id": 500 + n // 3, "line": n % 3, "country": "DE", "at": iso(n, 2)},
            60,
            late=2,
        ),
        ("id", "order_id"),
        results=60,
    ),
    Case(
        "self join on the parent",
        topic("tasks", lambda n: {"id": n + 40, "parent_id": n + 39, "at": iso(n)}),
        topic("tasks", lambda n: {"id": n + 40, "parent_id": n + 39, "at": iso(n)}),
        ("id", "parent_id"),
        results=19,
    ),
    Case(
        "columns that are mostly null are not preferred",
        topic(
            "orders",
            lambda n: {"order_ref": uuid(n), "legacy": n if n < 2 else None, "at": iso(n)},
        ),
        topic(
            "parcels",
            lambda n: {
                "order_ref": uuid(mixed(n)),
                "legacy": n if n < 2 else None,
                "at": iso(mixed(n), 2),
            },
            late=22,
        ),
        ("order_ref", "order_ref"),
    ),
    Case(
        "samples that have few ids in common, and columns with few values",
        topic(
            "clicks",
            lambda n: {
                "click_id": n,
                "country": "DF"[n % 2],
                "batch_id": n % 10,
                "legacy_id": 900 + n,
                "at": iso(n),
            },
        ),
        topic(
            "buys",
            lambda n: {
                "click_id": 13 + mixed(n),
                "country": "DF"[n % 2],
                "batch_id": 7 if n < 2 else 50 + n,
                "legacy_id": 900 + n if n < 2 else 5_000 + n,
                "at": iso(mixed(n), 13 + 5 * (n % 5)),
            },
            late=53,
        ),
        ("click_id", "click_id"),
        after="1 minute",
        results=7,
    ),
    Case(
        "record key in JSON has the id that the value lacks",
        raw_topic(
            "orders",
            lambda n: json.dumps({"total": n % 3, "at": iso(n)}).encode(),
            lambda n: b'{"order_id": %d}' % (500 + n),
        ),
        topic("payments", lambda n: {"order_id": 500 + n, "at": iso(n, 2)}, late=2),
        ("record_key.order_id", "order_id"),
        comments=("  key_format: json\n", '  key_schema: "STRUCT<order_id: BIGINT>"\n'),
    ),
    Case(
        "record key in JSON with the schema of Kafka Connect",
        raw_topic(
            "shop.orders",
            lambda n: json.dumps({"total": n % 3, "at": iso(n)}).encode(),
            lambda n: b'{"schema": {"type": "struct"}, "payload": {"id": "%d"}}' % (900_500 + n),
        ),
        topic("payments", lambda n: {"order_id": 900_500 + n, "at": iso(n, 2)}, late=2),
        ("record_key.payload.id", "cast(order_id AS STRING)"),
        comments=('  key_schema: "STRUCT<payload: STRUCT<id: STRING>>"\n',),
    ),
    Case(
        "record key in JSON with the id of a schema in front",
        raw_topic(
            "orders",
            lambda n: json.dumps({"total": n % 3, "at": iso(n)}).encode(),
            lambda n: ID + b'{"order_id": %d}' % (500 + n),
        ),
        topic("payments", lambda n: {"order_id": 500 + n, "at": iso(n, 2)}, late=2),
        ("record_key.order_id", "order_id"),
        comments=("key_format: json_schema\n",),
    ),
    Case(
        "record key in JSON that repeats a column is only mentioned",
        raw_topic(
            "orders",
            lambda n: json.dumps({"id": 500 + n, "at": iso(n)}).encode(),
            lambda n: b'{"id": %d}' % (500 + n),
        ),
        topic("payments", lambda n: {"order_id": 500 + n, "at": iso(n, 2)}, late=2),
        ("id", "order_id"),
        comments=("# The record keys are JSON, for use as record_key: key_format: json, key_",),
    ),
    Case(
        "record keys in quotes",
        raw_topic(
            "l",
            lambda n: json.dumps({"a": n % 3, "at": iso(n)}).encode(),
            lambda n: b'"%s"' % uuid(n).encode(),
        ),
        topic("r", lambda n: {"b": n % 4, "at": iso(n, 2)}, key=uuid, late=2),
        ("record_key", "record_key"),
        comments=("  key_format: json\n  key_schema: STRING\n",),
    ),
    Case(
        "record keys in Avro are no key",
        raw_topic(
            "orders",
            lambda n: json.dumps({"id": 500 + n, "at": iso(n)}).encode(),
            lambda n: ID + bytes([2 * n]),
        ),
        topic("payments", lambda n: {"order_id": 500 + n, "at": iso(n, 2)}, late=2),
        ("id", "order_id"),
        comments=("# The record keys begin with the id 129 of a schema, and are no JSON",),
    ),
    Case(
        "record keys of a serializer for whole numbers, which no format reads",
        raw_topic(
            "orders",
            lambda n: json.dumps({"id": 500 + n, "at": iso(n)}).encode(),
            lambda n: (2**40 + n).to_bytes(8),
        ),
        topic("payments", lambda n: {"order_id": 500 + n, "at": iso(n, 2)}, late=2),
        ("id", "order_id"),
        lacks=("The record keys",),
    ),
]
