"""Envelopes of Debezium."""

import json

from tests.unit.proposal.corpus.case import ID, Case, Value, ms, raw_topic, topic


def change(row: Value | None, n: int, late: int = 0, before: Value | None = None) -> Value:
    """The envelope of a change."""
    return {
        "before": before,
        "after": row,
        "source": {"ts_ms": ms(n, late), "db": "shop", "lsn": 1_000 + n, "table": "t"},
        "op": "d" if row is None else "c",
        "ts_ms": ms(n, late) + 350,
    }


SOURCE = "record_source_timestamp"
ENVELOPE = "  envelope: debezium "

CASES = [
    Case(
        "envelopes",
        topic("db.orders", lambda n: change({"id": 7 + n, "total": 5}, n)),
        topic("db.payments", lambda n: change({"id": n, "order_id": 7 + n}, n, 2), late=2),
        ("id", "order_id"),
        (SOURCE, SOURCE),
        comments=(
            ENVELOPE,
            "schema: id BIGINT, total BIGINT\n",
            "# operations of the sample: create 20, read 0, update 0, delete 0.",
        ),
    ),
    Case(
        "envelopes with deletes",
        topic(
            "db.orders",
            lambda n: change(None if n == 19 else {"id": 7 + n}, n, before={"id": 7 + n}),
        ),
        topic("db.payments", lambda n: change({"order_id": 7 + n}, n, 2), late=2),
        ("id", "order_id"),
        (SOURCE, SOURCE),
        results=19,
        comments=("# operations of the sample: create 19, read 0, update 0, delete 1.",),
    ),
    Case(
        "envelopes with a schema",
        topic("db.orders", lambda n: {"schema": {}, "payload": change({"id": 7 + n}, n)}),
        topic(
            "db.payments",
            lambda n: {"schema": {}, "payload": change({"order_id": 7 + n}, n, 2)},
            late=2,
        ),
        ("id", "order_id"),
        (SOURCE, SOURCE),
    ),
    Case(
        "envelopes and plain rows",
        topic("db.orders", lambda n: change({"id": 7 + n}, n)),
        topic("payments", lambda n: {"order_id": 7 + n, "at": ms(n, 2)}, late=2),
        ("id", "order_id"),
        (SOURCE, "at"),
    ),
    Case(
        "envelopes of updates alone",
        topic("db.orders", lambda n: {**change({"id": 7 + n}, n, before={"id": 7 + n}), "op": "u"}),
        topic("payments", lambda n: {"order_id": 7 + n, "at": ms(n, 2)}, late=2),
        ("id", "order_id"),
        (SOURCE, "at"),
        comments=(
            "  operations: [update]   # of the sample: create 0, read 0, update 20, delete 0\n",
        ),
    ),
    Case(
        "envelopes, tombstones, and deletes with the primary key alone",
        topic(
            "db.orders",
            lambda n: (
                None
                if n == 18
                else change(None, n, before={"id": 7, "total": None})
                if n == 17
                else change({"id": 7 + n, "total": 5}, n)
            ),
        ),
        topic("db.payments", lambda n: change({"id": n, "order_id": 7 + n}, n, 2), late=2),
        ("id", "order_id"),
        (SOURCE, SOURCE),
        results=18,
        comments=('# `before` of a delete lacks "total": the database does not log whole rows.',),
    ),
    Case(
        "envelopes whose row lacks the key of the record",
        raw_topic(
            "db.orders",
            lambda n: json.dumps(change({"total": 5 + n % 2}, n)).encode(),
            lambda n: b'{"schema": {}, "payload": {"id": %d}}' % (7 + n),
        ),
        topic("db.payments", lambda n: change({"id": n, "order_id": 7 + n}, n, 2), late=2),
        ("record_key.payload.id", "order_id"),
        (SOURCE, SOURCE),
        comments=(ENVELOPE, "  key_format: json\n"),
    ),
    Case(
        "envelopes behind the id of a schema",
        raw_topic("db.orders", lambda n: ID + json.dumps(change({"id": 7 + n}, n)).encode()),
        topic("payments", lambda n: {"order_id": 7 + n, "at": ms(n, 2)}, late=2),
        ("id", "order_id"),
        (SOURCE, "at"),
        comments=(ENVELOPE, "  format: json_schema\n"),
    ),
    Case(
        "envelopes in Protobuf, which no spec opens",
        topic(
            "db.orders",
            lambda n: change({"id": 7 + n}, n),
            before="STRUCT<id: BIGINT>",
            after="STRUCT<id: BIGINT>",
            source="STRUCT<ts_ms: BIGINT>",
            op="STRING",
            ts_ms="BIGINT",
        ),
        topic("payments", lambda n: {"order_id": 7 + n, "at": ms(n, 2)}, late=2),
        ("after.id", "order_id"),
        ("timestamp_millis(source.ts_ms)", "at"),
        comments=("opens whole envelopes in avro, json, json_schema, and not these",),
    ),
]
