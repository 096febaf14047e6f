"""Transaction slots: the producers of a query with exactly-once delivery, and their markers.

    slot            transactional id                partition of the commit topic
    0, 1, …         streamjoin-<name>-0, …          that with the number of the state partition
    dead-letters    streamjoin-<name>-dead-letters  the one after those

The rows are written in Java (writer/transactions.py). The driver claims slots (ownership.py) and
fences them (exactly_once.py).
"""

from dataclasses import dataclass, field
from typing import Any

from job.delivery import producers
from job.delivery.commit_topic import dead_letter_partition
from job.delivery.markers import MarkerReader
from job.kafka.clients import AdminClient
from job.plan.plan import JoinPlan


@dataclass(frozen=True)
class Slot:
    name: str
    commit_partition: int
    """Partition of the commit topic. No two slots share one: see markers.py."""


@dataclass(frozen=True)
class Target:
    """The commit topic of a query, and the identity of the query there."""

    admin: AdminClient = field(repr=False, compare=False)
    client: tuple[tuple[str, Any], ...] = field(repr=False)
    """Settings of librdkafka, with secrets and functions."""
    name: str
    query_id: str
    commit_topic: str
    transaction_timeout_seconds: int

    def producer_settings(self, slot: Slot) -> dict[str, Any]:
        return {
            **dict(self.client),
            **producers.SETTINGS,
            "transactional.id": transactional_id(self.name, slot.name),
            "transaction.timeout.ms": self.transaction_timeout_seconds * 1000,
        }

    def reader(self) -> MarkerReader:
        """A reader for one thread. All readers share the admin client."""
        client, group = dict(self.client), f"streamjoin-{self.name}"
        return MarkerReader(self.admin, client, self.commit_topic, group)


def slot_of(partition: int) -> Slot:
    """The slot of a state partition."""
    return Slot(str(partition), partition)


def dead_letter_slot(plan: JoinPlan) -> Slot:
    """The slot of the dead letters of micro-batches. Intervals write their dead letters with their
    results."""
    return Slot("dead-letters", dead_letter_partition(plan))


def transactional_id(name: str, slot: str) -> str:
    """The same for all queries of a name, so that each query fences the others.

    Has a fixed prefix, so that an ACL for it can exist before the query.
    """
    return f"streamjoin-{name}-{slot}"
