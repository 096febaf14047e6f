"""A table is read again if Kafka may have removed tombstones that the query has not read.

The job changes to the same spec on another checkpoint: a change reads the table from its beginning,
and the stream from the cut on. So keys that were deleted meanwhile leave the table.
"""

import itertools
import re
from collections.abc import Callable
from datetime import UTC, datetime

import structlog
import yaml

from job.change.sent_spec import PlannedSpec, WrittenSpec
from job.checkpoint.checkpoint import Checkpoint
from job.checkpoint.watermark_history import WatermarkHistory
from job.instants import from_epoch_ms, to_epoch_ms, utc_text
from job.kafka.kafka_admin import KafkaAdmin
from job.kafka.tombstones import topics_with_lost_tombstones
from job.plan.plan import JoinPlan
from job.spec.document import parsed

_log = structlog.get_logger()
_SUFFIX = re.compile(r"-reload-\d+$")


class TableReload:
    def __init__(self, running: PlannedSpec) -> None:
        self._running = running
        self._is_requested = False

    def is_needed(self, checkpoint: Checkpoint, kafka: KafkaAdmin, *, has_failed: bool) -> bool:
        """Whether Kafka may have removed tombstones since the query has read its table. Logs the
        reason. True once: a change that has failed is tried again in the next process.

        `has_failed`: whether such a change of an earlier process was not made.
        Raises BrokerError if no broker answers.
        """
        plan = self._running.plan
        if self._is_requested or plan.table_side is None:
            return False
        reason = reason_to_reload(plan, checkpoint, kafka, to_epoch_ms(datetime.now(UTC)))
        if has_failed:
            reason = "an earlier start was to read it again, and has not"
        if reason is None:
            return False
        if plan.is_as_of:
            # The state has versions that compaction has removed, and rows may need them.
            _log.warning("table_may_lack_deletions", side=plan.table_side, reason=reason)
            return False
        _log.warning("table_read_again", side=plan.table_side, reason=reason)
        self._is_requested = True
        return True

    def spec(self, checkpoint: Checkpoint) -> str:
        """YAML of the same spec on a new checkpoint."""

        def is_new(folder: str) -> bool:
            other = Checkpoint(checkpoint.folder.spark, folder)
            return not other.has_begun and other.fingerprint is None

        return spec_of_reload(self._running.written, is_new)


def reason_to_reload(
    plan: JoinPlan, checkpoint: Checkpoint, kafka: KafkaAdmin, now_ms: int
) -> str | None:
    """Why the table may lack deletions. None: it does not, or it is not known when it was read.

    Raises BrokerError if no broker answers.
    """
    table, offsets = plan.table_side, checkpoint.offsets
    read_at_ms = WatermarkHistory(checkpoint.folder).last_at_ms if table and offsets else None
    if table is None or offsets is None or read_at_ms is None:
        return None
    topics = topics_with_lost_tombstones(
        kafka, checkpoint.source_topics[table], offsets[table], now_ms - read_at_ms
    )
    if not topics:
        return None
    return (
        f"the query has not read {', '.join(topics)} since {utc_text(from_epoch_ms(read_at_ms))}, "
        "longer than delete.retention.ms: Kafka may have removed tombstones"
    )


def spec_of_reload(running: WrittenSpec, is_new: Callable[[str], bool]) -> str:
    """YAML of the same spec on another checkpoint. `is_new`: whether a folder contains no query."""
    document = parsed(running.text)
    base = _SUFFIX.sub("", running.spec.checkpoint.rstrip("/"))
    folders = (f"{base}-reload-{number}" for number in itertools.count(1))
    document["checkpoint"] = next(folder for folder in folders if is_new(folder))
    written: str = yaml.safe_dump(document, sort_keys=False, allow_unicode=True)
    return written
