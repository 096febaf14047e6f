"""`streamjoin checkpoint skip-gap`: continue without records that Kafka deleted before the query
read them, with the rows in state.

A skipped record has no effect, as if it had never been written. That is only possible if none of
its results was delivered: the row that it matched would later be emitted as unmatched, too. Only an
interrupted batch or interval can have delivered results of records after the last batch. With
exactly-once delivery the commit topic shows them, once the producers are fenced, and the gap is
then not skipped. With at-least-once delivery nothing shows them, and the user decides.

Both engines use the same logs of Spark, and a start begins with a micro-batch in both. An interval
of which nothing was delivered is repeated after the gap, with its watermark.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from job.change.hand_over import fence_and_read_unfinished
from job.change.query import Query
from job.checkpoint.checkpoint import Checkpoint
from job.checkpoint.cli import STOP_THE_QUERY, leased, view_checkpoint
from job.checkpoint.documents import ExactlyOnce, read_document
from job.checkpoint.frozen import frozen_settings
from job.checkpoint.maintenance import repair_logs
from job.checkpoint.skipped import skip
from job.checkpoint.successor import check_not_changed, read_replay
from job.delivery.exactly_once import check_ownership
from job.errors import CheckpointError, ConflictError, RetentionError
from job.kafka.kafka_admin import KafkaAdmin
from job.kafka.preflight import check_topics
from job.kafka.reset_remedy import reset_remedy
from job.kafka.retention import Gap, find_gaps, next_offsets
from job.kafka.security import KafkaAccess
from job.kafka.topic_ids import TopicIdentity
from job.plan.fingerprint import (
    check_not_frozen,
    incompatible_changes,
    recorded_plan,
    recorded_topics,
)
from job.plan.plan import JoinPlan
from job.replay.replay import has_complete_state
from job.settings import JobSettings
from job.spec.output import Delivery

_RESET = f"To continue with empty state: {reset_remedy()}"


@dataclass(frozen=True)
class UnreadGaps:
    query_id: str
    after_batch: int
    """The last batch that ended. The query continues after it."""
    gaps: Sequence[Gap]
    """Empty: Kafka has all records that the query has not read."""
    may_be_delivered: bool
    """Whether an interrupted batch may have delivered results of the deleted records. False: it has
    not, or `skip` checks that."""

    @property
    def lines(self) -> Iterator[str]:
        if not self.gaps:
            yield "nothing to skip: Kafka has all records that the query has not read"
            return
        yield "records were deleted before they were read:"
        yield from (f"  {gap}" for gap in self.gaps)
        yield (
            f"without them, the query continues after batch {self.after_batch} with its state. "
            "Rows whose only matches were deleted count as unmatched"
        )
        if self.may_be_delivered:
            yield (
                "the next batch was interrupted, and at-least-once delivery does not show what it "
                "has written: a row may be emitted as matched and, later, as unmatched"
            )

    @property
    def as_json(self) -> dict[str, object]:
        return {
            "after_batch": self.after_batch,
            "gaps": [
                {
                    "side": gap.side,
                    "topic": gap.topic,
                    "partition": gap.partition,
                    "first_offset": gap.read,
                    "next_offset": gap.resume_offset,
                }
                for gap in self.gaps
            ],
            "may_be_delivered": self.may_be_delivered,
        }


def skip_gap(
    plan: JoinPlan, settings: JobSettings, confirm: Callable[[UnreadGaps], bool]
) -> tuple[UnreadGaps, bool]:
    """The gaps before the unread records, and whether they are skipped: if `confirm` returns True,
    which is called again if they have changed meanwhile. Raises StreamjoinError if a job runs, or
    if the gaps cannot be skipped."""
    shown: UnreadGaps | None = None
    with view_checkpoint(plan, settings) as opened:
        while True:
            # A user may answer after days, so everything is read again after the answer.
            with leased(opened.checkpoint, STOP_THE_QUERY):
                repair_logs(opened.folder, datetime.now(UTC))
                access = Query(plan, opened.checkpoint).read_access()
                stopped = StoppedQuery(plan, opened.checkpoint, access)
                unread = stopped.find_gaps()
                if unread == shown:
                    stopped.skip(unread, datetime.now(UTC))
                    return unread, True
            if not (confirm(unread) and unread.gaps):
                return unread, False
            shown = unread


class StoppedQuery:
    """The caller has the lease of the checkpoint."""

    def __init__(self, plan: JoinPlan, checkpoint: Checkpoint, access: KafkaAccess) -> None:
        """Raises CheckpointError if the checkpoint has no state to keep, FrozenSpecError if it
        belongs to another spec."""
        check_not_changed(checkpoint)
        root, frozen = checkpoint.folder.root, frozen_settings(checkpoint, plan)
        has_state = has_complete_state(checkpoint.offsets, read_replay(checkpoint))
        if frozen is None or not has_state:
            raise CheckpointError(
                f"{root} has no state to keep: no batch has ended, or the query still reads "
                f"records again after a change. {_RESET}"
            )
        check_not_frozen(root, incompatible_changes(plan, frozen))
        plan = recorded_plan(plan, frozen).with_topics(recorded_topics(plan, frozen))
        self._kafka = KafkaAdmin(access)
        self._plan = check_topics(plan, self._kafka).plan_with_partitions(plan)
        self._checkpoint = checkpoint

    def find_gaps(self) -> UnreadGaps:
        """Raises RetentionError if an input topic was created again, or has lost records that were
        read, and CheckpointError if the commit topic was created again."""
        checkpoint, last = self._checkpoint, self._checkpoint.last_batch_id
        read = next_offsets(self._plan, checkpoint.offsets, None)
        assert last is not None, "there is state"
        assert read is not None
        identity = TopicIdentity(self._plan, lambda: checkpoint.offsets)
        identity.begin(self._plan, self._kafka, checkpoint.topic_ids, lambda: None)
        gaps = find_gaps(self._plan, self._kafka, read)
        if truncated := [gap for gap in gaps if gap.was_truncated]:
            lines = "\n".join(f"  {gap}" for gap in truncated)
            raise RetentionError(
                f"records were deleted after they were read:\n{lines}\n"
                "New records get the offsets of deleted ones, and their results the ids of earlier "
                f"results, so the gap cannot be skipped. {_RESET}"
            )
        is_interrupted = not checkpoint.is_committed or checkpoint.interrupted_interval is not None
        since = self._exactly_once_since
        has_markers = since is not None and since <= last
        return UnreadGaps(checkpoint.query_id, last, gaps, is_interrupted and not has_markers)

    def skip(self, unread: UnreadGaps, now: datetime) -> None:
        """Raises ConflictError if results of the deleted records may be delivered, CheckpointError
        if another query has replaced this one, DeliveryError if the commit topic cannot be read or
        written."""
        checkpoint, last = self._checkpoint, unread.after_batch
        if self._exactly_once_since is not None:
            check_ownership(self._plan, self._kafka, checkpoint)
            batch_id = fence_and_read_unfinished(
                self._plan, checkpoint, self._kafka, last_batch=last
            )
            if batch_id is not None:
                raise ConflictError(_delivered(batch_id, last), allowed=[])
        skip(checkpoint, unread.gaps, now)

    @property
    def _exactly_once_since(self) -> int | None:
        """The first batch of which the commit topic shows what was delivered. None: of no batch."""
        document = read_document(self._checkpoint.folder, ExactlyOnce)
        is_exactly_once = self._plan.output.delivery is Delivery.EXACTLY_ONCE
        return document.since if is_exactly_once and document is not None else None


def _delivered(batch_id: int, last: int) -> str:
    """`batch_id`: of a batch or interval that has delivered results. `last`: the last batch."""
    what = (
        f"the query has delivered results of batch {batch_id}, after batch {last}, the last one in "
        "the checkpoint: it was interrupted, or the checkpoint is an older copy"
        if batch_id > last
        else f"the query was interrupted in interval {batch_id} after it had delivered some "
        "results, and has not repeated all of it"
    )
    return (
        f"{what}. If a deleted record gave one of these results, the row that it matched would "
        "later be emitted as unmatched, too, so the gap cannot be skipped with exactly-once "
        f"delivery. {_RESET}"
    )
