"""Whether Kafka still has all that the checkpoint has not read, asked before the query starts.

Spark notices only when it reads, names one partition of them, and neither what is gone nor the way
on.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from confluent_kafka import IsolationLevel, KafkaException, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # its own re-exports
    AdminClient,
    OffsetSpec,
)

from job.errors import BrokerError, RetentionError
from job.join_spec.expressions import SIDES, Side
from job.kafka.security import KafkaAccess, librdkafka_settings
from job.plan.plan import JoinPlan

_ANSWER_SECONDS = 10.0

Offsets = Mapping[Side, Mapping[int, int]]


@dataclass(frozen=True)
class Gap:
    """What a partition no longer has, or never had."""

    side: Side
    topic: str
    partition: int
    read: int
    """The next offset to read, as the checkpoint has it."""
    earliest: int
    end: int

    def __str__(self) -> str:
        place = f"{self.topic} partition {self.partition}"
        if self.read < self.earliest:
            count = self.earliest - self.read
            return f"{place}: offsets {self.read} to {self.earliest - 1} ({count:,} records)"
        return f"{place}: has been read up to offset {self.read}, and now ends at {self.end}"

    @property
    def way_on(self) -> int:
        """The nearest offset at which reading can go on."""
        return self.earliest


def check_retention(plan: JoinPlan, access: KafkaAccess, read: Offsets | None) -> None:
    """`read`: the next offsets of the checkpoint; None where there is none.

    Raises RetentionError naming each range that is gone, and BrokerError where no broker answers.
    """
    if read is None:
        return
    client = AdminClient({**librdkafka_settings(access), "log_level": 0})
    try:
        gaps = [gap for side in SIDES for gap in _gaps(client, plan, side, read[side])]
    except KafkaException as error:
        raise BrokerError(
            f"no broker answers at {plan.bootstrap_servers} ({error.args[0].str()})"
        ) from error
    if gaps:
        raise RetentionError(_told(gaps))


def _gaps(
    client: AdminClient, plan: JoinPlan, side: Side, read: Mapping[int, int]
) -> Iterator[Gap]:
    topic = plan.side(side).topic
    earliest = _asked(client, topic, read, OffsetSpec.earliest())  # type: ignore[no-untyped-call]
    ends = _asked(client, topic, read, OffsetSpec.latest())  # type: ignore[no-untyped-call]
    for partition, offset in read.items():
        if not earliest[partition] <= offset <= ends[partition]:
            yield Gap(side, topic, partition, offset, earliest[partition], ends[partition])


def _asked(
    client: AdminClient, topic: str, partitions: Mapping[int, int], spec: OffsetSpec
) -> dict[int, int]:
    places = {TopicPartition(topic, partition): spec for partition in partitions}
    answers = client.list_offsets(
        places,
        isolation_level=IsolationLevel.READ_UNCOMMITTED,
        request_timeout=_ANSWER_SECONDS,
    )
    return {place.partition: answer.result().offset for place, answer in answers.items()}


def _told(gaps: list[Gap]) -> str:
    lines = "\n".join(f"  {gap}" for gap in gaps)
    body = {
        side: {str(gap.partition): gap.way_on for gap in gaps if gap.side == side}
        for side in SIDES
        if any(gap.side == side for gap in gaps)
    }
    return (
        f"records are gone that were not read yet:\n{lines}\n"
        "They were deleted by retention or by hand, or the topic was created again; without them "
        "results would be missing silently. To go on without them: `stop`, then "
        f"PATCH /v1/query/offsets with {json.dumps(body)} (and the query's name as `confirm`), "
        "then `resume`. The join begins anew there: rows now waiting in state are not joined"
    )
