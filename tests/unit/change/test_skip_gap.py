"""Deleted records are skipped with the state kept, and only if they have no effect yet."""

from contextlib import nullcontext
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest

from job.change import skip_gap
from job.change.skip_gap import StoppedQuery, UnreadGaps
from job.checkpoint.checkpoint import Checkpoint
from job.checkpoint.documents import ExactlyOnce, SkippedRecords, read_document, write_document
from job.checkpoint.reset import reset_checkpoint
from job.checkpoint.skipped import read_skipped, skip
from job.errors import CheckpointError, ConflictError, RetentionError
from job.kafka.retention import Gap
from job.spec.output import Delivery
from job.spec.start_positions import StartPositions
from tests.unit.checkpoint.folders import CrashError, Disk, Folder

ROOT = "file:/checkpoint"
NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)
GAPS = [Gap("left", "a", 1, 5, 9, 30), Gap("left", "a", 2, 0, 3, 3), Gap("right", "b", 0, 6, 7, 7)]
OLD = {"left": {0: 20, 1: 5}, "right": {0: 6}}
NEW = {"left": {0: 20, 1: 9, 2: 3}, "right": {0: 7}}


def interrupted(disk: Disk) -> Checkpoint:
    """Batch 6 has ended, and batch 7 is planned."""
    made = object.__new__(Checkpoint)
    folder: Any = Folder(disk, ROOT)
    made.folder = folder
    for batch_id, ends in ((5, (20, 4)), (6, (20, 6)), (7, (21, 8))):
        disk.files[f"{ROOT}/query/offsets/{batch_id}"] = (
            f'v2\n{{"batchWatermarkMs":60000}}\n'
            f'left:{{"a":{{"0":{ends[0]},"1":5}}}}\nright:{{"b":{{"0":{ends[1]}}}}}'
        )
    for batch_id in (5, 6):
        disk.files[f"{ROOT}/query/commits/{batch_id}"] = "v2\n{}"
    return made


@pytest.mark.parametrize("when", ["before", "after"])
def test_crash_leaves_the_old_offsets_or_the_new_ones_and_a_repetition_counts_once(
    when: str,
) -> None:
    for write in range(1, 9):
        disk = Disk()
        checkpoint = interrupted(disk)
        disk.crash_at = (write, when)
        was_killed = False
        try:
            skip(checkpoint, GAPS, NOW)
        except CrashError:
            was_killed = True
        disk.crash_at = None

        assert checkpoint.offsets in (OLD, NEW)
        # With the new offsets, batch 7 would begin behind its end.
        assert checkpoint.is_committed or checkpoint.offsets == OLD
        skip(checkpoint, GAPS, NOW)
        assert (NEW, 6, 6) == (
            *(checkpoint.offsets, checkpoint.last_batch_id),
            checkpoint.last_planned_batch_id,
        )
        batch = checkpoint.batch(6)
        assert batch is not None
        assert 60_000 == batch.watermark_ms
        assert {"left": 7, "right": 1} == read_skipped(checkpoint)
        if not was_killed:
            return
    pytest.fail("more writes than expected")


def test_later_gap_is_added_and_a_reset_forgets_all() -> None:
    checkpoint = interrupted(Disk())
    skip(checkpoint, GAPS, NOW)
    skip(checkpoint, [Gap("left", "a", 1, 9, 12, 30)], NOW)

    assert {"left": 10, "right": 1} == read_skipped(checkpoint)
    document = read_document(checkpoint.folder, SkippedRecords)
    assert document is not None
    assert [6] * 4 == [each.batch_id for each in document.ranges]
    reset_checkpoint(checkpoint, StartPositions(left="earliest", right="earliest"), NOW)
    assert {"left": 0, "right": 0} == read_skipped(checkpoint)


class Stopped:
    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, since: int | None, delivery: Delivery
    ) -> None:
        """`since`: of exactly_once.json. None: there is none."""
        self.checkpoint = interrupted(Disk())
        if since is not None:
            write_document(self.checkpoint.folder, ExactlyOnce(since=since))
        made: Any = object.__new__(StoppedQuery)
        made._checkpoint, made._kafka = self.checkpoint, SimpleNamespace(access=None)
        numbers = {"left": (0, 1, 2), "right": (0,)}
        made._plan = SimpleNamespace(
            output=SimpleNamespace(delivery=delivery),
            side=lambda side: SimpleNamespace(partition_numbers=numbers[side]),
        )
        self.query: StoppedQuery = made
        self.gaps = GAPS
        self.is_replaced = False
        self.fenced = 0
        self.unfinished: int | None = None
        monkeypatch.setattr(skip_gap, "find_gaps", lambda *_: self.gaps)
        monkeypatch.setattr(skip_gap, "fence_and_read_unfinished", self._fence)
        monkeypatch.setattr(skip_gap, "check_ownership", self._check_ownership)
        monkeypatch.setattr(skip_gap, "TopicIdentity", lambda *_: self)

    def begin(self, *_: object) -> None:
        pass

    def _check_ownership(self, *_: object) -> None:
        if self.is_replaced:
            raise CheckpointError("another query")

    def _fence(self, *_: object, last_batch: int) -> int | None:
        assert 6 == last_batch
        self.fenced += 1
        return self.unfinished

    def skip(self) -> bool:
        """Whether the user is warned."""
        unread = self.query.find_gaps()
        self.query.skip(unread, NOW)
        assert NEW == self.checkpoint.offsets
        return unread.may_be_delivered


def test_gap_is_not_skipped_if_the_interrupted_batch_has_delivered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stopped = Stopped(monkeypatch, 0, Delivery.EXACTLY_ONCE)
    stopped.unfinished = 7
    with pytest.raises(ConflictError, match="has delivered results of batch 7, after batch 6"):
        stopped.skip()
    assert (OLD, False) == (stopped.checkpoint.offsets, stopped.checkpoint.is_committed)

    stopped.unfinished = 6
    with pytest.raises(ConflictError, match=r"interrupted in interval 6 .* not repeated all"):
        stopped.skip()

    stopped.unfinished = None
    assert not stopped.skip()
    assert 3 == stopped.fenced


@pytest.mark.parametrize(
    ("since", "delivery", "fenced"),
    [
        (None, Delivery.AT_LEAST_ONCE, 0),
        (None, Delivery.EXACTLY_ONCE, 0),  # until now at least once
        (7, Delivery.EXACTLY_ONCE, 1),  # batch 7 may have begun with at-least-once delivery
    ],
)
def test_user_is_warned_if_no_marker_shows_what_the_interrupted_batch_has_delivered(
    monkeypatch: pytest.MonkeyPatch, since: int | None, delivery: Delivery, fenced: int
) -> None:
    stopped = Stopped(monkeypatch, since, delivery)
    assert stopped.skip()
    assert fenced == stopped.fenced


def test_query_that_another_one_has_replaced_fences_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stopped = Stopped(monkeypatch, 0, Delivery.EXACTLY_ONCE)
    stopped.is_replaced = True
    with pytest.raises(CheckpointError, match="another query"):
        stopped.skip()
    assert (0, OLD) == (stopped.fenced, stopped.checkpoint.offsets)


def test_partition_that_has_lost_records_that_were_read_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stopped = Stopped(monkeypatch, 0, Delivery.EXACTLY_ONCE)
    stopped.gaps = [Gap("left", "a", 1, 5, 0, 3)]
    with pytest.raises(
        RetentionError, match=r"was read up to offset 5, and now ends at 3\n.*ids of"
    ):
        stopped.skip()


class Reading:
    """What each reading of a stopped query finds."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *found: UnreadGaps) -> None:
        self._found = iter(found)
        self.asked: list[UnreadGaps] = []
        self.skipped: list[UnreadGaps] = []
        opened = SimpleNamespace(checkpoint=None, folder=None)
        for name, value in {
            "view_checkpoint": lambda *_: nullcontext(opened),
            "leased": lambda *_: nullcontext(),
            "repair_logs": lambda *_: None,
            "Query": lambda *_: SimpleNamespace(read_access=lambda: None),
            "StoppedQuery": lambda *_: self,
        }.items():
            monkeypatch.setattr(skip_gap, name, value)

    def find_gaps(self) -> UnreadGaps:
        return next(self._found)

    def skip(self, unread: UnreadGaps, _: datetime) -> None:
        self.skipped.append(unread)

    def confirm(self, unread: UnreadGaps) -> bool:
        self.asked.append(unread)
        return True

    def run(self) -> tuple[UnreadGaps, bool]:
        nothing: Any = None
        return skip_gap.skip_gap(nothing, nothing, self.confirm)


def unread(*gaps: Gap) -> UnreadGaps:
    return UnreadGaps("q", 6, gaps, may_be_delivered=False)


def test_gap_is_skipped_although_new_records_arrive_while_the_user_answers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first, second = (unread(Gap("left", "a", 1, 5, 9, end)) for end in (30, 31))
    reading = Reading(monkeypatch, first, second)

    assert (second, True) == reading.run()
    assert ([first], [second]) == (reading.asked, reading.skipped)


def test_user_is_asked_again_if_more_records_were_deleted_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first, more = (unread(Gap("left", "a", 1, 5, earliest, 30)) for earliest in (9, 12))
    reading = Reading(monkeypatch, first, more, more)

    assert (more, True) == reading.run()
    assert ([first, more], [more]) == (reading.asked, reading.skipped)
