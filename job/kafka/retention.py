"""Checks before the query starts that Kafka still has all records that the checkpoint has not read.

Spark fails only when it reads, and names one partition, but neither the lost offsets nor a remedy.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from job.errors import RetentionError
from job.event_time.partitions import Offsets
from job.kafka.clients import EARLIEST, LATEST, AdminClient, list_offsets_of_topics
from job.kafka.kafka_admin import KafkaAdmin
from job.kafka.reset_remedy import reset_remedy
from job.plan.plan import JoinPlan
from job.spec.sides import SIDES, Side
from job.spec.source_topics import SourceTopics
from job.spec.start_positions import StartPositions

_CONTINUE = "To continue without them: "
_KEEP_STATE = (
    "To continue without them and keep the state: `streamjoin stop SPEC`, or end the job; then "
    "`streamjoin checkpoint skip-gap SPEC`; then `streamjoin resume SPEC`, or start the job. To "
    "continue without them and without the state: "
)


@dataclass(frozen=True)
class Gap:
    """Offsets of a partition that do not exist, or no longer exist."""

    side: Side
    topic: str
    partition: int
    read: int
    """Next offset to read in the checkpoint."""
    earliest: int
    end: int = field(compare=False)

    def __str__(self) -> str:
        place = f"{self.topic} partition {self.partition}"
        if self.was_truncated:
            return f"{place}: was read up to offset {self.read}, and now ends at {self.end}"
        last = self.earliest - 1
        records = "record" if self.records == 1 else "records"
        return f"{place}: offsets {self.read} to {last} ({self.records:,} {records})"

    @property
    def was_truncated(self) -> bool:
        """Whether the partition has lost records that were read. The next records get their
        offsets, and therefore the ids of their results."""
        return self.read > self.end

    @property
    def records(self) -> int:
        """Offsets that do not exist any more: at most as many records."""
        return max(0, self.earliest - self.read)

    @property
    def resume_offset(self) -> int:
        """Offset from which the query can continue: the earliest. If the partition ends before
        `read`, its records are not the ones that were read, so all of them are read."""
        return self.earliest


def check_retention(
    plan: JoinPlan, kafka: KafkaAdmin, read: Offsets | None, *, has_state: bool
) -> None:
    """`read`: the next offsets to read. None: no batch has ended. `has_state`: as
    `has_complete_state`.

    Raises RetentionError with each lost range of offsets, or BrokerError if no broker answers.
    """
    if read is not None and (gaps := find_gaps(plan, kafka, read)):
        keeps_state = has_state and not any(gap.was_truncated for gap in gaps)
        raise RetentionError(_describe_gaps(plan, gaps, keeps_state=keeps_state))


def check_added_topics(
    plan: JoinPlan, before: Mapping[Side, SourceTopics], kafka: KafkaAdmin
) -> None:
    """Check that the topics that a start adds to `before` still have their first records.

    Spark reads an added topic from offset 0. Raises RetentionError or BrokerError.
    """
    added = {
        side: {
            number: 0
            for number in plan.side(side).partition_numbers
            if topics.place(number)[0] not in before[side].names
        }
        for side, topics in plan.topics.items()
    }
    if gaps := find_gaps(plan, kafka, added):
        raise RetentionError(
            f"{_describe_gaps(plan, gaps, keeps_state=False)}. Or start without the topic: set a "
            f"{gaps[0].side}.topic_pattern that does not match it, e.g. (?!{gaps[0].topic}$)…"
        )


def next_offsets(
    plan: JoinPlan, read: Offsets | None, starts: StartPositions | None
) -> Offsets | None:
    """The next offset to read of each partition. None, or a side without offsets: not known.

    `read`: those of the checkpoint. `starts`: those of a new checkpoint, if `read` is None. Spark
    reads a partition without an offset, which was added since, from its first record.
    """
    if read is None:
        if starts is None:
            return None
        named = {side: starts.side(side) for side in SIDES}
        read = {side: {} if isinstance(start, str) else start for side, start in named.items()}
    added = {side: dict.fromkeys(plan.side(side).partition_numbers, 0) for side in SIDES}
    return {side: {**added[side], **read[side]} if read[side] else {} for side in SIDES}


def find_gaps(plan: JoinPlan, kafka: KafkaAdmin, read: Offsets) -> list[Gap]:
    """`plan`: with the partitions of the topics. Raises RetentionError if a topic does not have a
    partition of `read`, or BrokerError if no broker answers."""
    _check_partitions(plan, read)
    # Retention deletes records at any time, so the offsets are read for each check.
    with kafka.raising_broker_error() as client:
        return [gap for side in SIDES for gap in _gaps(client, plan, side, read[side])]


def _check_partitions(plan: JoinPlan, read: Offsets) -> None:
    """Kafka never removes partitions of a topic. Without topic ids, fewer partitions are the only
    sign that it is another topic."""
    lines = []
    for side in SIDES:
        topics, counts = plan.side(side).topics, plan.side(side).partition_counts
        for number in sorted(read[side].keys() - set(plan.side(side).partition_numbers)):
            name, partition = topics.place(number)
            count = counts[topics.names.index(name)]
            has = f"the topic has {count} partition{'s' * (count != 1)}"
            lines.append(f"  {side}.topic {name} partition {partition}: {has}")
    if lines:
        found = "\n".join(lines)
        raise RetentionError(
            f"the checkpoint has offsets of partitions that do not exist:\n{found}\n"
            "The topics were deleted and created again with fewer partitions, or a reset has named "
            f"these partitions. To read the topics from the beginning: {reset_remedy()}"
        )


def _gaps(
    client: AdminClient, plan: JoinPlan, side: Side, read: Mapping[int, int]
) -> Iterator[Gap]:
    topics = plan.side(side).topics
    earliest = list_offsets_of_topics(client, topics, read, EARLIEST)
    ends = list_offsets_of_topics(client, topics, read, LATEST)
    for number, offset in read.items():
        if not earliest[number] <= offset <= ends[number]:
            yield Gap(side, *topics.place(number), offset, earliest[number], ends[number])


def _describe_gaps(plan: JoinPlan, gaps: list[Gap], *, keeps_state: bool) -> str:
    lines = "\n".join(f"  {gap}" for gap in gaps)
    offsets = {
        side: {gap.partition: gap.resume_offset for gap in gaps if gap.side == side}
        for side in SIDES
        if any(gap.side == side for gap in gaps)
    }
    # The offsets of a reset have no topic.
    are_several = any(plan.side(side).topics.are_several for side in SIDES)
    return (
        f"records were deleted before they were read:\n{lines}\n"
        "Retention or a user deleted them, or the topic was created again; their results would be "
        f"missing silently. {_KEEP_STATE if keeps_state else _CONTINUE}"
        f"{reset_remedy(None if are_several else offsets)}"
    )
