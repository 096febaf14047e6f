"""The simplest join, for tests of a job's life cycle: the left and right row of a number match."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from deploy.local.kafka import EmbeddedKafka
from tests.integration.topics import Received, Sent, consume_all, count_all, produce
from tests.registry_stub import RegistryStub
from tests.unit.formats import written
from tests.unit.formats.written import field, framed, record
from tests.unit.specs import changed

# Event times are this many milliseconds after 1970, plus the number.
T0 = 1_700_000_000_000

_AVRO = record(field("n", "long"), field("t", "long"))
_SPEC = """
name: {name}
kafka: {{bootstrap_servers: "{servers}"}}
left:
  topic: {name}.left
  schema: n BIGINT, t TIMESTAMP
  key: [n]
  event_time: t
  watermark_delay: 1 hour
right:
  topic: {name}.right
  schema: n BIGINT, t TIMESTAMP
  key: [n]
  event_time: t
  watermark_delay: 1 hour
join: {{type: {join_type}, match_window: {{before: 0 seconds, after: {after}}}}}
output: {{topic: {name}.out, columns: {{n: left.n}}, delivery: {delivery}}}
checkpoint: {checkpoint}
on_bad_record: drop
"""


class Pairs:
    """Topics and spec of one test."""

    def __init__(
        self,
        kafka: EmbeddedKafka,
        name: str,
        folder: Path,
        *,
        delivery: str = "at_least_once",
        checkpoint: str | None = None,
        registry: RegistryStub | None = None,
    ) -> None:
        """`checkpoint`: location outside of the folder, e.g. hdfs://… `registry`: left values are
        Avro. None: JSON."""
        self.kafka = kafka
        self.name = name
        self.delivery = delivery
        self._checkpoint = checkpoint or folder / "checkpoint"
        self._registry = registry
        if registry is not None:
            self._schema_id = registry.register(f"{name}.left-value", _AVRO)

    def create_topics(self) -> None:
        self.kafka.create_topics(
            [f"{self.name}.{part}" for part in ("left", "right", "out")], partitions=2
        )

    def spec(self, *, after: str = "10 seconds", join_type: str = "inner") -> str:
        text = _SPEC.format(
            join_type=join_type,
            name=self.name,
            servers=self.kafka.bootstrap_servers,
            after=after,
            checkpoint=self._checkpoint,
            delivery=self.delivery,
        )
        if self._registry is None:
            return text
        return changed(text, schema_registry={"url": self._registry.url}, left__format="avro")

    def produce(self, numbers: Iterable[int]) -> None:
        numbers = list(numbers)
        self.produce_left(numbers)
        self.produce_right(numbers)

    def produce_left(self, numbers: Iterable[int]) -> None:
        rows: list[Any] = _rows(numbers)
        if self._registry is not None:
            rows = [Sent(framed(self._schema_id, written.avro(_AVRO, **row))) for row in rows]
        produce(self.kafka.bootstrap_servers, f"{self.name}.left", rows)

    def produce_right(self, numbers: Iterable[int]) -> None:
        produce(self.kafka.bootstrap_servers, f"{self.name}.right", _rows(numbers))

    def received(self) -> list[Received]:
        return consume_all(self.kafka.bootstrap_servers, f"{self.name}.out")

    def result_count(self) -> int:
        return count_all(self.kafka.bootstrap_servers, f"{self.name}.out")

    def numbers(self) -> list[int]:
        """The results, sorted; a number that occurs twice is a repeated result."""
        return sorted(received.value["n"] for received in self.received())


def _rows(numbers: Iterable[int]) -> list[dict[str, int]]:
    return [{"n": number, "t": T0 + number} for number in numbers]
