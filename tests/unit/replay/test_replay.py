"""Phases of the replay, and batches that are kept back."""

import pytest

from job.event_time.partitions import Offsets, RecordedEventTime, RecordedEventTimes
from job.replay.cut import LateBelow, PlannedBatch, late_by_batch
from job.replay.replay import (
    Expired,
    Replay,
    ReplayPhase,
    expired_before,
    has_complete_state,
    late_rows,
)
from job.spec.source_topics import SourceTopics

REPLAY = Replay(
    old_checkpoint="file:/old",
    old_query_id="4711",
    old_batch_id=7,
    starts={"left": {0: 10, 1: 5}, "right": {0: 3}},
    ends={"left": {0: 20, 1: 5}, "right": {0: 6}},
    watermark_ms=60_000,
    next_watermark_ms=61_000,
    state_partitions=3,
    event_times=RecordedEventTimes(left={0: RecordedEventTime(20, 90_000)}),
    late=(LateBelow({"left": {0: 15, 1: 5}, "right": {0: 6}}, 50_000),),
    expired=(Expired("left", kept_ms=5_000), Expired("right", window_ms=(60_000, 0))),
    topic_ids={"impressions": "abc"},
    late_unknown_before={"left": {0: 12, 1: 5}, "right": {0: 3}},
)


def offsets(left: int, right: int) -> Offsets:
    return {"left": {0: left, 1: 5}, "right": {0: right}}


def batch(left: int, right: int, watermark_ms: int) -> PlannedBatch:
    return PlannedBatch(1, offsets(left, right), watermark_ms)


@pytest.mark.parametrize(
    ("read", "phase", "left_to_read"),
    [
        (None, ReplayPhase.READING, 13),
        (offsets(10, 6), ReplayPhase.READING, 10),
        (offsets(18, 6), ReplayPhase.READING, 2),
        (offsets(19, 5), ReplayPhase.READING, 2),
        (offsets(19, 6), ReplayPhase.TAKING_OVER, 1),
        (offsets(20, 6), ReplayPhase.OVER, 0),
        (offsets(99, 99), ReplayPhase.OVER, 0),
    ],
)
def test_phase_follows_from_the_offsets(
    read: Offsets | None, phase: ReplayPhase, left_to_read: int
) -> None:
    assert (phase, left_to_read) == (REPLAY.phase(read), REPLAY.left_to_read(read))
    assert (phase is ReplayPhase.OVER) == has_complete_state(read, REPLAY)
    assert (read is not None) == has_complete_state(read, None)


def test_last_record_is_left_for_the_batch_that_takes_over() -> None:
    latest = {0: 99, 1: 99, 2: 7}

    assert {0: 19, 1: 5, 2: 0} == REPLAY.readable(ReplayPhase.READING, "left", latest)
    assert {0: 6} == REPLAY.readable(ReplayPhase.READING, "right", {0: 99})
    assert {0: 20, 1: 5, 2: 0} == REPLAY.readable(ReplayPhase.TAKING_OVER, "left", latest)
    assert latest == REPLAY.readable(ReplayPhase.OVER, "left", latest)


@pytest.mark.parametrize(
    ("planned", "is_kept_back"),
    [
        (batch(15, 6, 0), True),
        (batch(20, 6, 60_000), True),
        (batch(20, 6, 60_001), False),  # without records, with a later watermark
        (batch(21, 6, 60_000), False),
        (batch(20, 7, 60_000), False),
    ],
)
def test_batches_up_to_the_cut_are_kept_back(planned: PlannedBatch, is_kept_back: bool) -> None:
    assert is_kept_back == REPLAY.keeps_back(planned)


def test_partition_added_after_the_cut_is_no_part_of_the_replay() -> None:
    beyond = PlannedBatch(1, {"left": {0: 20, 1: 5, 2: 1}, "right": {0: 6}}, 60_000)

    assert not REPLAY.keeps_back(beyond)


def test_document_is_read_back() -> None:
    later = {"expired": expired_before(REPLAY, ["right"]), "first_offsets": FIRST}
    for replay in (
        REPLAY,
        REPLAY.model_copy(update=later),
        REPLAY.model_copy(update={"late": (), "expired": ()}),
    ):
        assert replay == Replay.model_validate_json(replay.model_dump_json())


def test_records_that_are_read_again_may_have_been_late_before_the_log() -> None:
    assert 2 == REPLAY.possibly_late_records
    assert (
        0 == REPLAY.model_copy(update={"late_unknown_before": REPLAY.starts}).possibly_late_records
    )
    # Also those after the cut are no part of the replay.
    beyond: Offsets = {"left": {0: 99, 1: 99, 2: 4}, "right": {0: 99}}
    assert (
        REPLAY.records
        == REPLAY.model_copy(update={"late_unknown_before": beyond}).possibly_late_records
    )


def test_rows_that_are_kept_back_stay_so_after_another_change() -> None:
    (left,) = expired_before(REPLAY, ["left"])

    assert Expired("left", kept_ms=5_000, ends=REPLAY.ends, watermark_ms=60_000) == left
    later = REPLAY.model_copy(
        update={"expired": (left,), "ends": offsets(99, 99), "watermark_ms": 90_000}
    )
    assert (left,) == expired_before(later, ["left", "right"])
    assert () == expired_before(None, ["left"])


def batches(first: int, *watermarks_ms: int) -> list[PlannedBatch]:
    """Consecutive batches, each with one left record."""
    return [
        PlannedBatch(number, offsets(number + 1, 0), ms)
        for number, ms in enumerate(watermarks_ms, first)
    ]


FIRST: Offsets = {"left": {0: 0}, "right": {0: 0}}


@pytest.mark.parametrize(
    ("in_log", "unknown_before"),
    [
        (batches(0, 0, 30_000), FIRST),
        (batches(7, 0, 30_000), FIRST),  # without a watermark no row was late
        (batches(7, 20_000, 30_000), offsets(8, 0)),
    ],
)
def test_lateness_is_unknown_before_the_second_batch_of_the_log(
    in_log: list[PlannedBatch], unknown_before: Offsets
) -> None:
    assert (late_by_batch(in_log), unknown_before) == late_rows(in_log, FIRST, None)


def test_rows_that_were_late_before_an_earlier_change_stay_late() -> None:
    """Its own replay, up to offset 20, has dropped none as late."""
    replayed = [
        PlannedBatch(0, offsets(19, 6), 0),
        PlannedBatch(1, offsets(20, 6), 60_000),
        PlannedBatch(2, offsets(25, 6), 61_000),
        PlannedBatch(3, offsets(27, 6), 62_000),
    ]
    later = (LateBelow(offsets(25, 6), 60_000), LateBelow(offsets(27, 6), 61_000))

    expected = ((*REPLAY.late, *later), REPLAY.late_unknown_before)
    assert expected == late_rows(replayed, REPLAY.starts, REPLAY)
    assert expected == late_rows(replayed[1:], REPLAY.starts, REPLAY)
    assert offsets(25, 6) == late_rows(replayed[2:], REPLAY.starts, REPLAY)[1]


def test_rows_are_late_by_the_watermark_of_the_batch_before() -> None:
    watermarks = [0, 0, 30_000, 30_000, 40_000]
    batches = [
        PlannedBatch(number, offsets(number + 1, 0), ms) for number, ms in enumerate(watermarks)
    ]

    assert [(3, 0), (5, 30_000)] == [
        (late.ends["left"][0], late.watermark_ms) for late in late_by_batch(batches)
    ]


def test_rows_of_an_interval_are_late_by_its_own_watermark() -> None:
    in_log = batches(7, 20_000, 30_000, 40_000, 50_000)

    late, unknown_before = late_rows(in_log, FIRST, None, intervals={7, 9})

    # The entry of the first batch in the log also applies to the batches before it.
    assert [(8, 0), (9, 20_000), (11, 40_000)] == [
        (each.ends["left"][0], each.watermark_ms) for each in late
    ]
    assert offsets(8, 0) == unknown_before


def test_rows_that_became_late_within_an_interval_are_not_known() -> None:
    in_log = batches(7, 20_000, 30_000, 40_000, 50_000)
    of = {"intervals": {7, 8, 9}, "advanced": {8}}

    assert offsets(9, 0) == late_rows(in_log, FIRST, None, **of)[1]
    assert offsets(9, 0) == late_rows(in_log, REPLAY.starts, REPLAY, **of)[1]
    assert offsets(8, 0) == late_rows(in_log, FIRST, None, intervals={7, 8, 9})[1]


def test_planned_batch_is_read_from_the_offset_log_of_spark() -> None:
    log = (
        'v2\n{"batchWatermarkMs":42,"conf":{}}\nleft:{"a":{"0":2},"b":{"1":3}}\nright:{"c":{"0":1}}'
    )
    topics = {"left": SourceTopics(("a", "b")), "right": SourceTopics(("c",))}

    assert PlannedBatch(
        3, {"left": {0: 2, 1024 + 1: 3}, "right": {0: 1}}, 42
    ) == PlannedBatch.from_log(3, log, topics)  # type: ignore[arg-type]
