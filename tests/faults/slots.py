"""The transaction slots of a job under test, whose requests the proxy catches."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from confluent_kafka import Producer

from tests.faults.commit_topic import SlotRecords, slot_records
from tests.faults.harness import Harness
from tests.integration.jobs import START_SECONDS, STATE_PARTITIONS
from tests.polling import wait_until

HELD_SECONDS = 50
"""Wait for the answer to a commit: requests that are caught are not sent again, however busy the
machine is."""


class Slots:
    """The transaction slots of a harness: their producers and their records in the commit topic."""

    def __init__(self, harness: Harness) -> None:
        self._harness = harness
        self.ids = [f"streamjoin-{harness.name}-{n}" for n in range(STATE_PARTITIONS)]
        self.output = harness.topic("out")

    @property
    def records(self) -> list[SlotRecords]:
        slots = slot_records(self._harness.records(self._harness.topic("commits")))
        [query_id] = {query_id for query_id, _ in slots}
        return [slots[query_id, str(n)] for n in range(STATE_PARTITIONS)]

    @property
    def running_batch(self) -> int:
        """The batch that Spark has not committed yet, while a caught request prevents its end."""
        commits = self._harness.checkpoint / "query" / "commits"
        names = (path.name for path in commits.glob("*"))
        return max((int(name) for name in names if name.isdecimal()), default=-1) + 1

    def wait_for_marker(self, *slots: int) -> list[SlotRecords]:
        """Wait until these slots have the marker of the running batch."""
        batch = self.running_batch

        def has_all() -> list[SlotRecords] | None:
            records = self.records
            return records if all(batch in records[n].batches for n in slots) else None

        return wait_until(has_all, START_SECONDS, f"slots {slots} have the marker of {batch}")

    @contextmanager
    def hide_records(self, slot: int) -> Iterator[None]:
        """Hide the next records of the slot from consumers, by an open transaction of another
        producer."""
        harness = self._harness
        settings: dict[str, Any] = {
            "bootstrap.servers": harness.kafka.bootstrap_servers,
            "transactional.id": f"hides-{harness.name}",
            "transaction.timeout.ms": 5 * 60_000,  # longer than two starts on a busy machine
        }
        producer = Producer(settings)
        producer.init_transactions(START_SECONDS)
        producer.begin_transaction()
        producer.produce(harness.topic("commits"), b"{}", b"other", slot)
        assert 0 == producer.flush(START_SECONDS)
        try:
            yield
        finally:
            producer.abort_transaction(START_SECONDS)
