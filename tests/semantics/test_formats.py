"""Avro and Protobuf give the same columns, counts and dead letters as JSON, on Spark."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from job.dataflow.sides import UNKNOWN_IDS, decoded, observed_metrics, record_counts
from job.dead_letters import sql
from job.errors import RegistryError, SecurityError
from job.formats.avro import _bare
from job.formats.pinning import reader_schemas
from job.formats.registry import RegistryAccess
from job.plan.plan import JoinPlan
from job.plan.planner import join_plan
from job.plan.side_plan import SidePlan
from job.spark.failures import failure_of
from job.spark.observed_metrics import count_where
from job.spec.spec import spec_from_yaml
from tests.registry_stub import RegistryStub
from tests.semantics.test_dead_letters import RECORDS, T0
from tests.sql_worker import SQL
from tests.unit.formats import written
from tests.unit.formats.written import field, framed, record
from tests.unit.specs import spec_yaml

pytestmark = pytest.mark.usefixtures("same_python")
MILLIS = {"type": "long", "logicalType": "timestamp-millis"}
SHOWN = record(
    field("ad_id", "long"),
    field("shown_at", ["null", MILLIS]),
    field("seen", MILLIS),
    field("tags", {"type": "map", "values": "int"}),
    field("big", {"type": "bytes", "logicalType": "decimal", "precision": 20, "scale": 0}),
)
BARE = {**SHOWN, "fields": _bare(SHOWN)["fields"]}
CLICK = """syntax = "proto3";
message Click { int64 ad_id = 1; int64 clicked_at = 2; repeated string tags = 3; uint64 big = 4; }
"""


@dataclass
class Side:
    spark: SparkSession
    registry: RegistryStub
    plan: JoinPlan

    def rows(self, *values: bytes | None, side: Any = "left", unknown: tuple[int, ...] = ()) -> Any:
        return self.records(*((b"k", value) for value in values), side=side, unknown=unknown)

    def records(
        self,
        *sent: tuple[bytes | None, bytes | None],
        side: Any = "left",
        unknown: tuple[int, ...] = (),
    ) -> Any:
        """`sent`: keys and values."""
        at = datetime.fromtimestamp(T0 / 1000, UTC)
        records = [(key, value, "t", 0, n, at, []) for n, (key, value) in enumerate(sent)]
        frame = self.spark.createDataFrame(records, RECORDS)
        access = RegistryAccess(self.registry.url)
        keep = sql.KEPT
        return decoded(frame, self.plan.side(side), access, keep=keep, unknown_ids=unknown)


@pytest.fixture
def side(spark: SparkSession) -> Iterator[Side]:
    with RegistryStub() as stub:
        stub.register("impressions-value", SHOWN)
        stub.register("clicks-value", CLICK, "PROTOBUF")
        spec = spec_from_yaml(
            spec_yaml(
                schema_registry={"url": stub.url},
                left__format="avro",
                left__schema=None,
                right__format="protobuf",
                right__schema="ad_id BIGINT, clicked_at TIMESTAMP, tags ARRAY<STRING>, "
                "big DECIMAL(20, 0)",
                output__columns={"ad_id": "left.ad_id"},
            ),
            {},
        )
        yield Side(
            spark, stub, join_plan(spec, SQL, state_partitions=1, readers=reader_schemas(spec, SQL))
        )


def shown(number: int = 1, **row: Any) -> bytes:
    whole = {"ad_id": 7, "shown_at": T0, "seen": T0, "tags": {"a": 1}, "big": Decimal(5), **row}
    return framed(number, written.avro(BARE, **whole))


def values(rows: DataFrame, *names: str) -> list[dict[str, Any]]:
    """Values in the JSON of the output."""
    return [
        json.loads(row.v) for row in rows.select(F.to_json(F.struct(*names)).alias("v")).collect()
    ]


def test_avro_has_the_columns_of_its_types(side: Side) -> None:
    found = values(
        side.rows(shown()), "left_ad_id", "left_shown_at", "left_tags", "left_big", "reason"
    )

    time = {"left_shown_at": "2023-11-14T22:13:20.000Z"}
    assert [{"left_ad_id": 7, **time, "left_tags": {"a": 1}, "left_big": 5}] == found


def test_protobuf_has_the_columns_of_its_types(side: Side) -> None:
    value = written.proto(CLICK, ad_id=7, clicked_at=T0, tags=["a", "b"], big=2**64 - 1)
    names = ("right_ad_id", "right_clicked_at", "right_tags", "right_big", "reason")

    found = values(side.rows(framed(2, value), side="right"), *names)

    time = {"right_clicked_at": "2023-11-14T22:13:20.000Z"}
    assert [{"right_ad_id": 7, **time, "right_tags": ["a", "b"], "right_big": 2**64 - 1}] == found


BAD = {
    "tombstone": (None, "the record has no value"),
    "undecodable_value": (b"{}", "does not begin with a byte 0 and the 4 of a schema's id"),
    "unknown_schema": (framed(99, b"x"), "schema 99 is not in the schema registry http://"),
    "incompatible_schema": (framed(2, b"x"), "schema 2 has type PROTOBUF, expected AVRO"),
    "missing_event_time": (shown(shown_at=None), "field shown_at is missing or null"),
    "absurd_event_time": (
        shown(shown_at=2**62),
        "field shown_at is not between min_event_time 1980-01-01T00:00:00Z and the year 9999: ",
    ),
    "future_event_time": (
        shown(shown_at=T0 + 86_400_000),
        "field shown_at is more than 1 hour ahead of the record: 2023-11-15 22:13:20",
    ),
    "schema_mismatch": (shown(seen=2**62), "not of the declared type: seen TIMESTAMP"),
}


def explained(rows: DataFrame, side: Side) -> DataFrame:
    """Left rows with `dead_reason`, and the message of the dead letter as `said`."""
    return (
        rows.withColumn("is_late", F.lit(False))
        .withColumn("late_watermark", F.lit(None).cast("timestamp"))
        .selectExpr(*sql.with_reason(side.plan, side.plan.left))
        .selectExpr("*", f"{sql.message(side.plan.left)} AS said")
    )


def metrics(side: SidePlan) -> list[Column]:
    counts = record_counts(side).items()
    return [
        *(count_where(condition).alias(name) for name, condition in counts),
        *observed_metrics(side),
    ]


def test_every_reason_is_counted_and_explained(side: Side) -> None:
    sent = [shown(), *(value for value, _ in BAD.values())]
    counted = side.rows(*sent).agg(*metrics(side.plan.left)).collect()[0].asDict()
    letters = explained(side.rows(*sent), side).collect()

    assert dict.fromkeys(BAD, 1) == {reason: counted[reason] for reason in BAD}
    assert (len(sent), T0, [99]) == (
        counted["records"], counted["event_time_max_ms"], counted[UNKNOWN_IDS]
    )  # fmt: skip
    assert [None, *BAD] == [row.dead_reason for row in letters]
    for row, (_, message) in zip(letters[1:], BAD.values(), strict=True):
        assert row.said.startswith(message)


ROW = record(
    field("id", "long"),
    field("price", ["null", {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 2,
                             "connect.name": "org.apache.kafka.connect.data.Decimal"}]),
    field("at", ["null", MILLIS]),
    field("day", ["null", {"type": "int", "connect.name": "io.debezium.time.Date"}]),
    name="shop.orders.Value",
)  # fmt: skip
ENVELOPE = written.envelope(ROW)
KEY = 'syntax = "proto3"; message Key { int64 id = 1; string region = 2; }'


def change(op: str, *, before: Any = None, after: Any = None) -> bytes:
    bare = {"type": "record", "name": "e", "fields": written.bare_fields(ENVELOPE)}
    source = {"db": "shop", "ts_ms": T0 - 5_000}
    return written.avro(bare, op=op, before=before, after=after, source=source)


def test_avro_envelopes_and_keys_of_both_formats(side: Side) -> None:
    stub, order = side.registry, {"id": 1, "price": Decimal("-1.50"), "at": T0, "day": 19_783}
    number, key = stub.register("orders-value", ENVELOPE), stub.register("orders-key", '"long"')
    proto = stub.register("customers-key", KEY, "PROTOBUF")
    spec = spec_from_yaml(
        spec_yaml(
            schema_registry={"url": stub.url},
            left={
                "topic": "orders", "format": "avro", "envelope": "debezium", "key_format": "avro",
                "operations": ["create", "delete"], "key": ["record_key"], "event_time": "at",
                "watermark_delay": "1 second",
            },
            right={
                "topic": "customers", "format": "text", "key_format": "protobuf",
                "key": ["record_key.id"], "event_time": "record_timestamp",
                "watermark_delay": "1 second",
            },
            output__columns={"id": "left.id", "customer": "right.value"},
        ),
        {},
    )  # fmt: skip
    made = join_plan(spec, SQL, state_partitions=1, readers=reader_schemas(spec, SQL))
    typed = Side(side.spark, stub, made)
    seven = framed(key, written.plain_avro("long", 7))
    created, no_id = framed(number, change("c", after=order)), "does not begin with a byte 0 and"
    sent = [
        (seven, created, None, None),
        (None, framed(number, change("d", before=order)), "schema_mismatch", "the deleted row in"),
        (seven, framed(number, change("d", before=order)), None, None),
        (seven, framed(number, change("u", before=order, after=order)), None, None),
        (seven, None, None, None),
        (seven, framed(number, change("c")), "schema_mismatch", "the envelope of the operation cr"),
        (seven, framed(number, change("x")), "schema_mismatch", "the value is no envelope of Debe"),
        (b"x", created, "undecodable_value", f"the key {no_id}"),
        (b"x", b"{}", "undecodable_value", no_id),
        (framed(key, b""), created, "undecodable_value", f"the key: schema {key}: not Avro of"),
        (framed(99, b""), created, "unknown_schema", "the key: schema 99 is not in the schema reg"),
        (framed(number, b""), created, "incompatible_schema",
         f"the key: schema {number} cannot be read with schema {key}: field record_key: record"),
    ]  # fmt: skip
    records = typed.records(*((k, value) for k, value, _, _ in sent)).persist()
    rows = explained(records, typed).collect()
    [counted] = records.agg(*metrics(made.left)).collect()

    assert [reason for *_, reason, _ in sent] == [row.dead_reason for row in rows]
    for row, (*_, message) in zip(rows, sent, strict=True):
        assert row.said.startswith(message or "")
    [first, *_, third] = [row.asDict() for row in rows[:3]]
    names = ("record_key", "id", "price", "day", "record_operation")
    assert (7, 1, Decimal("-1.50"), 19_783, "create") == tuple(first[f"left_{n}"] for n in names)
    assert ("delete", 5) == (
        third["left_record_operation"],
        (third["left_at"] - third["left_record_source_timestamp"]).seconds,
    )
    assert ([99], 2, 3) == (counted[UNKNOWN_IDS], counted.filtered, counted.schema_mismatch)

    customer = (framed(proto, written.proto(KEY, id=7, region="x")), b"ada")
    found = values(typed.records(customer, side="right"), "right_record_key", "reason")
    assert [{"right_record_key": {"id": 7, "region": "x"}}] == found


def test_schema_that_a_batch_found_unknown_stays_so_when_its_records_are_read_again(
    side: Side,
) -> None:
    number = side.registry.register("later", SHOWN)

    [found] = side.rows(shown(number), unknown=(number,)).select("reason").collect()

    assert "unknown_schema" == found.reason


def test_value_is_decoded_once(side: Side) -> None:
    rows = side.rows(shown()).where("reason IS NOT NULL")
    plan = rows._jdf.queryExecution().executedPlan().toString()

    assert 1 == plan.count(".decode(")


@pytest.mark.parametrize(
    ("status", "expected", "message"),
    [
        (503, (RegistryError, True), "answers /schemas/ids/"),
        (401, (SecurityError, False), "refuses /schemas/ids/"),
    ],
)
def test_registry_that_does_not_answer_fails_the_batch(
    side: Side, status: int, expected: tuple[type, bool], message: str
) -> None:
    number = side.registry.register("later", SHOWN)
    side.registry.broken = (status, "")

    with pytest.raises(Exception, match=f"HTTP {status}") as raised:
        side.rows(shown(number)).collect()

    failure = failure_of(raised.value, "b")
    assert expected == (type(failure), failure.retryable)
    assert str(failure).startswith(f"schema registry {side.registry.url} {message}")


def test_schema_is_requested_once_by_all_tasks(side: Side) -> None:
    number = side.registry.register("later", SHOWN)
    side.registry.asked.clear()

    for _ in range(2):
        [row] = side.rows(shown(number)).select("reason").collect()
        assert row.reason is None

    assert [f"/schemas/ids/{number}"] == side.registry.asked


def test_schema_that_is_registered_later_is_read(side: Side) -> None:
    number = side.registry.register("later", SHOWN)

    [before, after] = [
        side.rows(shown(each)).select("reason").collect()[0].reason for each in (number + 1, number)
    ]
    side.registry.register("latest", {**SHOWN, "doc": "new"})
    [registered] = side.rows(shown(number + 1)).select("reason").collect()

    assert ("unknown_schema", None, None) == (before, after, registered.reason)
