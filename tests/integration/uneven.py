"""A backlog whose partitions differ in their event times, and the expected results."""

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from confluent_kafka import Producer

from bench.load import HOUR_MS, uneven_ms
from deploy.local.kafka import EmbeddedKafka
from job.spec.join_conditions import JoinType
from tests.integration.topics import consume_all, count_all

T0 = 1_700_000_000_000

_SPEC = """
name: {name}
kafka: {{bootstrap_servers: "{servers}"}}
left:
  topic: {topics}.left
  schema: n BIGINT, t TIMESTAMP
  key: [n]
  event_time: t
  watermark_delay: 10 seconds
  max_event_time_ahead: 10000000 days
right:
  topic: {topics}.right
  schema: n BIGINT, t TIMESTAMP
  key: [n]
  event_time: t
  watermark_delay: 10 seconds
  max_event_time_ahead: 10000000 days
join: {{type: {join_type}, match_window: {{before: 10 seconds, after: 10 seconds}}}}
output: {{topic: {name}.out, columns: {{{columns}}}, delivery: {delivery}}}
checkpoint: {checkpoint}
on_bad_record: drop
"""

_ONE_SIDED = 10
"""One row of each side per this many numbers has no partner."""


class Uneven:
    """Two topics with two partitions each, each partition in perfect event-time order.

    The event times are those of the benchmark's workload `uneven`. The rows of a number have the
    same event time and the same partition.
    """

    def __init__(
        self,
        kafka: EmbeddedKafka,
        topics: str,
        numbers: int,
        *,
        ahead_ms: int = 0,
        all_match: bool = False,
        even: bool = False,
    ) -> None:
        """`even`: partition 1 is like partition 0. `ahead_ms`: how much later the right topic
        begins; its rows then match nothing."""
        self.kafka = kafka
        self.topics = topics
        self.numbers = numbers
        self._ahead_ms = ahead_ms
        self._all_match = all_match
        self._even = even

    def create(self) -> None:
        names = [f"{self.topics}.{side}" for side in ("left", "right")]
        self.kafka.create_topics(names, partitions=2)
        producer = Producer(
            {
                "bootstrap.servers": self.kafka.bootstrap_servers,
                "log_level": 0,
                # A repeated request would change the order, as in the first moments of a topic.
                "max.in.flight.requests.per.connection": 1,
                "linger.ms": 50,
                "queue.buffering.max.messages": 1_000_000,
            }
        )
        for n, partition, at_ms in self._rows():
            for side in ("left", "right"):
                if self._has(side, n):
                    self._send(producer, side, n, at_ms, partition)
        assert 0 == producer.flush(60)

    def close(self) -> None:
        """One row a side that is later than all others, so that the watermark passes them."""
        producer = Producer({"bootstrap.servers": self.kafka.bootstrap_servers, "log_level": 0})
        for number, side in ((-1, "left"), (-2, "right")):
            self._send(producer, side, number, 3 * HOUR_MS + self._ahead_ms, 0)
        assert 0 == producer.flush(60)

    def _send(self, producer: Producer, side: str, n: int, at_ms: int, partition: int) -> None:
        ahead = self._ahead_ms if side == "right" else 0
        value = json.dumps({"n": n, "t": T0 + at_ms + ahead})
        producer.produce(f"{self.topics}.{side}", value.encode(), partition=partition)
        producer.poll(0)

    def _rows(self) -> Iterator[tuple[int, int, int]]:
        """Number, partition and event time."""
        of_each = self.numbers // 2
        for place in range(of_each):
            for partition in range(2):
                uneven = 0 if self._even else partition
                yield 2 * place + partition, partition, uneven_ms(uneven, place, of_each)

    def _has(self, side: str, n: int) -> bool:
        if self._all_match:
            return True
        missing = {"left": 3, "right": 7}[side]
        return n % _ONE_SIDED != missing

    def spec(
        self, folder: Path, join_type: str = "inner", delivery: str = "at_least_once"
    ) -> tuple[str, str]:
        """The name of the query and its spec."""
        name = f"{self.topics}_{join_type}"
        self.kafka.create_topics([f"{name}.out"], partitions=2)
        shown = JoinType(join_type).shown_sides
        return name, _SPEC.format(
            name=name,
            topics=self.topics,
            servers=self.kafka.bootstrap_servers,
            join_type=join_type,
            columns=", ".join(f"{side[0]}: {side}.n" for side in shown),
            delivery=delivery,
            checkpoint=folder / f"checkpoint-{join_type}",
        )

    def expected(self, join_type: str) -> set[tuple[int | None, int | None]]:
        """The results as (left number, right number)."""
        sides = {
            side: {n for n in range(2 * (self.numbers // 2)) if self._has(side, n)}
            for side in ("left", "right")
        }
        both = sides["left"] & sides["right"]
        left: set[tuple[int | None, int | None]] = {(n, None) for n in sides["left"] - both}
        right: set[tuple[int | None, int | None]] = {(None, n) for n in sides["right"] - both}
        pairs: set[tuple[int | None, int | None]] = {(n, n) for n in both}
        return {
            "inner": pairs,
            "left_outer": pairs | left,
            "right_outer": pairs | right,
            "full_outer": pairs | left | right,
            "left_semi": {(n, None) for n in both},
            "left_anti": left,
            "right_semi": {(None, n) for n in both},
        }[join_type]

    def has_written(self, name: str, expected: set[tuple[int | None, int | None]]) -> bool:
        """Whether the output topic contains `expected`. Reads it only if it has enough records."""
        count = count_all(self.kafka.bootstrap_servers, f"{name}.out")
        return count >= len(expected) and expected <= set(self.results(name))

    def results(self, name: str) -> Counter[tuple[int | None, int | None]]:
        received = consume_all(self.kafka.bootstrap_servers, f"{name}.out")
        return Counter((record.value.get("l"), record.value.get("r")) for record in received)
