"""Envelopes of Debezium and record keys in Avro, with broker, registry and job."""

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

from deploy.local.kafka import EmbeddedKafka
from tests.integration.jobs import Job
from tests.integration.jvms import SharedJvm
from tests.integration.topics import Sent, consume_all, dead_letters, produce
from tests.registry_stub import RegistryStub
from tests.unit.formats import written
from tests.unit.formats.written import field, framed, record

T0 = 1_700_000_000_000
_CHANGES = """
name: changes
kafka: {{bootstrap_servers: "{servers}"}}
schema_registry: {{url: "{registry}"}}
left:
  topic: changes.left
  format: avro
  envelope: debezium
  operations: [create, delete]
  columns: {{placed_at: timestamp_micros(placed)}}
  key: [customer]
  event_time: placed_at
  watermark_delay: 1 minute
right:
  topic: changes.right
  schema: at TIMESTAMP, user STRING
  key_format: avro
  key: [record_key.id]
  event_time: at
  watermark_delay: 1 minute
join: {{type: inner, match_window: {{before: 1 minute, after: 1 minute}}}}
output:
  topic: changes.out
  columns: {{id: left.id, amount: left.amount, change: left.record_operation, user: right.user}}
checkpoint: {checkpoint}
dead_letter: {{topic: changes.dead}}
"""
_ORDER = record(
    field("id", "long"),
    field("customer", "int"),
    field("amount", ["null", {"type": "bytes", "logicalType": "decimal", "precision": 12,
                              "scale": 2, "connect.name": "org.apache.kafka.connect.data."
                              "Decimal"}]),
    field("placed", {"type": "long", "connect.name": "io.debezium.time.MicroTimestamp"}),
    name="shop.orders.Value",
)  # fmt: skip
_CUSTOMER_KEY = record(field("id", "int"), name="shop.customers.Key")


def test_avro_envelopes_join_on_avro_keys(
    kafka: EmbeddedKafka, tmp_path: Path, jvm: SharedJvm
) -> None:
    kafka.create_topics(
        [f"changes.{part}" for part in ("left", "right", "out", "dead")], partitions=1
    )
    with RegistryStub() as stub:
        envelope = written.envelope(_ORDER)
        orders = stub.register("changes.left-value", envelope)
        customers = stub.register("changes.right-key", _CUSTOMER_KEY)
        order = {"id": 1, "customer": 7, "amount": Decimal("-1.50"), "placed": T0 * 1_000}

        def change(op: str, before: Any, after: Any) -> Sent:
            source = {"db": "shop", "ts_ms": T0}
            value = written.avro(envelope, before=before, after=after, source=source, op=op)
            return Sent(framed(orders, value))

        ada = json.dumps({"at": T0, "user": "ada"}).encode()
        sent = {
            "left": [
                change("c", None, order),
                change("u", order, order),
                change("d", order, None),
                Sent(None),
                change("c", None, None),
            ],
            "right": [
                Sent(ada, framed(customers, written.avro(_CUSTOMER_KEY, id=7))),
                Sent(ada, framed(99, b"")),
            ],
        }
        for side, records in sent.items():
            produce(kafka.bootstrap_servers, f"changes.{side}", records)
        spec = _CHANGES.format(
            servers=kafka.bootstrap_servers, registry=stub.url, checkpoint=tmp_path / "checkpoint"
        )
        with Job(spec, tmp_path, jvm) as job:
            job.wait_for_offsets(left=5, right=2)

    results = [result.value for result in consume_all(kafka.bootstrap_servers, "changes.out")]
    row = {"id": 1, "amount": -1.50, "user": "ada"}
    assert [{**row, "change": "create"}, {**row, "change": "delete"}] == sorted(
        results, key=lambda each: str(each["change"])
    )
    letters = dead_letters(kafka, "changes.dead")
    assert sorted((each.side, each.reason, each.message) for each in letters) == [
        ("left", "schema_mismatch", "the envelope of the operation create has no row"),
        (
            "right",
            "unknown_schema",
            f"the key: schema 99 is not in the schema registry {stub.url}",
        ),
    ]
