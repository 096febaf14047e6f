"""The topics of one side, and one number for each of their partitions.

Positions, offsets and event times are kept by this number. With one topic it is the number of the
partition in Kafka; with several it also contains the index of the topic in the list of the spec:
index * 1024 + partition. The checkpoint freezes the list, so a number never changes. Pure.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from job.errors import TopicError
from job.join_spec.sides import SIDES, Side

_PARTITION_BITS = 10
PARTITIONS_MAX = 1 << _PARTITION_BITS
"""Partitions that each topic of a side with several topics may have."""
TOPICS_MAX = 32
"""A position has 15 bits for the number (job/plan/position.py)."""

_SEPARATOR = ", "


@dataclass(frozen=True)
class SourceTopics:
    names: tuple[str, ...]

    def __str__(self) -> str:
        return _SEPARATOR.join(self.names)

    @classmethod
    def parsed(cls, text: str) -> "SourceTopics":
        """From the text that `str` returns."""
        return cls(tuple(text.split(_SEPARATOR)))

    @property
    def are_several(self) -> bool:
        return len(self.names) > 1

    def number(self, topic: str, partition: int) -> int:
        if not self.are_several:
            return partition
        if partition >= PARTITIONS_MAX:
            raise TopicError(
                f"topic {topic} has more than {PARTITIONS_MAX} partitions, and a side with several "
                "topics reads at most this many of each: use one topic on the side"
            )
        return (self.names.index(topic) << _PARTITION_BITS) + partition

    def place(self, number: int) -> tuple[str, int]:
        """Topic and partition in Kafka."""
        if not self.are_several:
            return self.names[0], number
        return self.names[number >> _PARTITION_BITS], number & (PARTITIONS_MAX - 1)

    def label(self, number: int) -> str:
        """The partition as users see it: `3`, or `orders_eu/3` with several topics."""
        topic, partition = self.place(number)
        return f"{topic}/{partition}" if self.are_several else str(partition)

    def numbered(self, offsets: Mapping[str, Mapping[str, int]]) -> dict[int, int]:
        """Offsets as Spark's Kafka source writes them: `{"orders_eu": {"3": 17}}`."""
        return {
            self.number(topic, int(partition)): offset
            for topic, partitions in offsets.items()
            for partition, offset in partitions.items()
        }

    def by_topic(self, numbers: Mapping[int, int]) -> dict[str, dict[int, int]]:
        """Offsets by topic and partition, from offsets by number. Every topic has an entry."""
        offsets: dict[str, dict[int, int]] = {name: {} for name in self.names}
        for number, offset in numbers.items():
            topic, partition = self.place(number)
            offsets[topic][partition] = offset
        return offsets

    def number_sql(self, topic: str, partition: str) -> str:
        """SQL of `number`, from the SQL of a topic and a partition."""
        if not self.are_several:
            return partition
        cases = " ".join(
            f"WHEN '{name}' THEN {index << _PARTITION_BITS}"
            for index, name in enumerate(self.names)
        )
        return f"(CASE {topic} {cases} END + {partition})"

    def topic_sql(self, number: str) -> str:
        """SQL of the topic of a number."""
        if not self.are_several:
            return f"'{self.names[0]}'"
        index = f"cast(shiftright({number}, {_PARTITION_BITS}) + 1 AS INT)"
        names = ", ".join(f"'{name}'" for name in self.names)
        return f"element_at(array({names}), {index})"

    def partition_sql(self, number: str) -> str:
        """SQL of the partition in Kafka of a number."""
        return f"({number} & {PARTITIONS_MAX - 1})" if self.are_several else number


ONE_TOPIC_EACH: Mapping[Side, SourceTopics] = {side: SourceTopics(("",)) for side in SIDES}
"""Topics whose partitions have their own numbers, whatever the topics' names are."""
