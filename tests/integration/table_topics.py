"""The topics of a stream that is joined with a table, and the spec of the join."""

from pathlib import Path
from typing import Any

from confluent_kafka import TopicPartition
from confluent_kafka.admin import OffsetSpec

from deploy.local.kafka import EmbeddedKafka
from job.kafka.clients import admin
from tests.integration.jobs import START_SECONDS
from tests.integration.topics import Received, Sent, consume_all, produce
from tests.polling import wait_until

SPEC = """
name: enriched_{engine}
engine: {engine}
kafka: {{bootstrap_servers: "{servers}"}}
left:
  topic: {name}.orders
  schema: id INT, customer INT
  key: [customer]
  event_time: record_timestamp
  watermark_delay: 1 second
right:
  topic: {name}.customers
  schema: tier STRING
  key: [cast(record_key AS INT)]
  table: latest
join: {{type: left_outer}}
output:
  topic: {name}.out
  key: id
  columns: {{id: left.id, customer: left.customer, tier: right.tier}}
  delivery: exactly_once
checkpoint: {checkpoint}
on_bad_record: drop
"""
INTERVAL = "real_time: {{checkpoint_interval: 5 seconds}}\n"
"""Of the real-time engine, which counts some results at the end of an interval."""
AS_OF = {
    "customer INT": "customer INT, at TIMESTAMP",
    "  event_time: record_timestamp": "  event_time: at",
    "tier STRING": "tier STRING, since TIMESTAMP",
    "  table: latest": "  event_time: since\n  watermark_delay: 1 second\n  table: as_of",
    "on_bad_record: drop": "dead_letter: {{topic: {name}.dead}}\non_late_row: dead_letter",
}
HOUR_MS = 3_600_000
NOON_MS = 1_767_268_800_000


class Topics:
    def __init__(
        self,
        kafka: EmbeddedKafka,
        engine: str,
        folder: Path,
        name: str = "tables",
        delete_retention_ms: int = 86_400_000,
    ) -> None:
        self._servers = kafka.bootstrap_servers
        self._name = f"{name}.{engine}"
        kafka.create_topics({f"{self._name}.orders": 2, f"{self._name}.out": 2})
        kafka.create_topics(
            {f"{self._name}.customers": 3},
            config={
                "cleanup.policy": "compact,delete",  # records can be deleted
                "delete.retention.ms": str(delete_retention_ms),
            },
        )
        checkpoint = folder / "checkpoint"
        spec = SPEC + INTERVAL if engine == "real_time" else SPEC
        self.spec = spec.format(
            engine=engine, name=self._name, servers=self._servers, checkpoint=checkpoint
        ).replace("name: enriched", f"name: {name}")
        self._orders = 0

    def customers(self, tiers: dict[int, str | None]) -> None:
        """Records of the table. None: a tombstone."""
        records = (
            Sent(None if tier is None else {"tier": tier}, key=str(customer))
            for customer, tier in tiers.items()
        )
        produce(self._servers, f"{self._name}.customers", records)

    def forget_customers(self) -> None:
        """Delete all records of the table's topic."""
        topic = f"{self._name}.customers"
        client = admin({"bootstrap.servers": self._servers})
        ends = {TopicPartition(topic, partition): OffsetSpec.latest() for partition in range(3)}
        places = [
            TopicPartition(topic, place.partition, found.result().offset)
            for place, found in client.list_offsets(ends).items()
        ]
        for deleted in client.delete_records(places).values():
            deleted.result(START_SECONDS)

    def order(self, *customers: int | None) -> None:
        first, self._orders = self._orders, self._orders + len(customers)
        orders: list[Any] = [
            {"id": first + n, "customer": customer} for n, customer in enumerate(customers)
        ]
        produce(self._servers, f"{self._name}.orders", orders)

    def results(self) -> dict[int, Received]:
        """By order: one each."""
        found = consume_all(self._servers, f"{self._name}.out")
        by_id = {record.value["id"]: record for record in found}
        assert len(by_id) == len(found)
        return by_id

    def wait_for_results(self) -> dict[int, Received]:
        """Once each order has one."""

        def all_results() -> dict[int, Received] | None:
            results = self.results()
            return results if len(results) == self._orders else None

        return wait_until(all_results, START_SECONDS, f"{self._orders} orders have a result")

    def tiers(self) -> list[str | None]:
        """Of all orders, in their order."""
        results = self.wait_for_results()
        return [results[number].value["tier"] for number in range(self._orders)]


class Prices:
    """Orders at hours, and versions of the tier of their only customer."""

    def __init__(
        self, kafka: EmbeddedKafka, engine: str, folder: Path, name: str, table: str
    ) -> None:
        self._servers = kafka.bootstrap_servers
        topics = [f"{name}.{engine}.{topic}" for topic in ("orders", "customers", "out", "dead")]
        kafka.create_topics(dict.fromkeys(topics, 2))
        self._orders, self._versions, self._output, self._dead = topics
        spec = SPEC.replace("enriched_", f"{name}_")
        for text, by in AS_OF.items():
            spec = spec.replace(text, by)
        spec = spec.replace("table: as_of", f"table: {table}")
        if engine == "real_time":  # the counts of a table are reported at the end of an interval
            spec += INTERVAL
        self.spec = spec.format(
            engine=engine,
            name=f"{name}.{engine}",
            servers=self._servers,
            checkpoint=folder / "checkpoint",
        )

    def order(self, *hours: int) -> None:
        orders: list[Any] = [
            {"id": hour, "customer": 1, "at": NOON_MS + hour * HOUR_MS} for hour in hours
        ]
        produce(self._servers, self._orders, orders)

    def version(self, hour: int, tier: str) -> None:
        value = {"tier": tier, "since": NOON_MS + hour * HOUR_MS}
        produce(self._servers, self._versions, [Sent(value, key="1")])

    def tiers(self, count: int) -> dict[int, str | None]:
        """By order, once there are so many results."""
        found = wait_until(
            lambda: (
                found if len(found := consume_all(self._servers, self._output)) >= count else None
            ),
            START_SECONDS,
            f"{count} orders have a result",
        )
        assert count == len(found)
        return {record.value["id"]: record.value["tier"] for record in found}

    def late_orders(self) -> list[int]:
        return [letter.value["id"] for letter in consume_all(self._servers, self._dead)]
