"""The topics of one side, and one number for each of their partitions.

Positions, offsets and event times are kept by this number. With one topic it is the number of the
partition in Kafka; with several it also contains the index of the topic in the list of the side:
index * 1024 + partition. The checkpoint freezes the list, so a number never changes. A pattern can
only append topics. Pure.
"""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from job.errors import TopicError
from job.spec.sides import SIDES, Side

_PARTITION_BITS = 10
PARTITIONS_MAX = 1 << _PARTITION_BITS
"""Partitions that each topic of a side with several topics may have."""
TOPICS_MAX = 32
"""A position has 15 bits for the number (job/plan/position.py)."""

_SEPARATOR = ", "


@dataclass(frozen=True)
class SourceTopics:
    names: tuple[str, ...]
    """Topics of the side. With a pattern: the topics that a start has found. Empty: no start has
    searched for topics."""
    pattern: str | None = None
    """Regular expression of the side's `topic_pattern`. None: the spec names the topics."""

    def __str__(self) -> str:
        return _SEPARATOR.join(self.names) or self.pattern or ""

    @classmethod
    def parsed(cls, text: str) -> "SourceTopics":
        """From the text that `str` returns."""
        return cls(tuple(text.split(_SEPARATOR)))

    @property
    def are_several(self) -> bool:
        """Whether the number of a partition contains the index of its topic. With a pattern always,
        because a topic may be added."""
        return len(self.names) > 1 or self.pattern is not None

    def matches(self, topic: str) -> bool:
        """Whether the side reads a topic of this name."""
        if self.pattern is None:
            return topic in self.names
        return re.fullmatch(self.pattern, topic) is not None

    def recorded(self, names: Collection[str]) -> "SourceTopics":
        """The side with the topics of a checkpoint that match the pattern, in their order."""
        return replace(self, names=tuple(name for name in names if self.matches(name)))

    def with_added(self, matching: Collection[str]) -> "SourceTopics":
        """The side with added topics of the pattern, after its existing topics."""
        names = (*self.names, *sorted(set(matching) - set(self.names)))
        if len(names) > TOPICS_MAX:
            raise TopicError(
                f"{len(names)} topics match topic_pattern {self.pattern}, and a side reads at most "
                f"{TOPICS_MAX}: narrow the pattern"
            )
        return replace(self, names=names)

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

    def place_of_label(self, label: str) -> tuple[str, int]:
        """Topic and partition in Kafka, from the text that `label` returns."""
        topic, _, partition = label.rpartition("/")
        return topic or self.names[0], int(partition)

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
