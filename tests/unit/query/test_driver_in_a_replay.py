"""The replay of a changed query: limits, watermark, and what follows the replay."""

from job.event_time.fair_reading import FIRST_BATCH_RECORDS
from job.event_time.partitions import RecordedEventTime, RecordedEventTimes
from job.protocol.status import Phase
from job.query.driver import EndsRequested
from job.replay.replay import Replay, ReplayPhase
from tests.unit.query.driven import Driven, both, ends

REPLAY = Replay(
    old_checkpoint="file:/old",
    old_query_id="4711",
    old_batch_id=7,
    starts=ends(10, 10),
    ends=ends(20, 16),
    watermark_ms=60_000,
    next_watermark_ms=61_000,
    state_partitions=3,
    event_times=RecordedEventTimes(
        left={0: RecordedEventTime(20, 71_000)}, right={0: RecordedEventTime(16, 85_000)}
    ),
    late_unknown_before=ends(13, 10),
)


def replaying(
    phase: Phase | None = None, replay: Replay = REPLAY, step: ReplayPhase = ReplayPhase.READING
) -> Driven:
    return Driven(phase, replay, replay_phase=step)


def limits(run: Driven, left: int, right: int) -> tuple[int | None, int | None]:
    return run.limit("left", left, 99), run.limit("right", right, 99)


def test_partition_that_was_added_after_the_change_is_read_after_the_replay() -> None:
    requested = EndsRequested("left", {0: 10}, {0: 99, 1: 7})
    assert {0: 19, 1: 0} == replaying().after(requested)
    assert {0: 20, 1: 0} == replaying(step=ReplayPhase.TAKING_OVER).after(requested)


def test_intervals_follow_the_replay_if_no_record_is_unread() -> None:
    """Spark requests the ends twice if it plans no batch without records."""
    run = replaying(Phase.CATCH_UP, step=ReplayPhase.TAKING_OVER)
    run.plan(ends(19, 16), ends(20, 16))
    run.batch(ends(20, 16), ends(20, 16), ends(71_000, 85_000))
    for _ in range(2):
        assert [] == run.next_phases
        run.plan(ends(20, 16), ends(20, 16))
    assert [Phase.REAL_TIME] == run.next_phases


def test_batch_of_the_replay_has_only_the_limit_of_spark() -> None:
    """No small first batch, and no order of event times: nothing waits for either."""
    run = replaying(replay=REPLAY.model_copy(update={"ends": ends(50_010, 16)}))
    assert (50_009, 16) == limits(run, 10, 10)
    run.batch(ends(15, 10), ends(50_009, 16), ends(9_000_000, 10_000))
    assert (50_009, 16) == limits(run, 15, 10)


def test_first_batch_after_the_replay_is_small() -> None:
    """Consumers have waited for its results since the cut."""
    run = replaying()
    run.batch(ends(19, 16), both(99), ends(71_000, 85_000))
    run.batch(ends(20, 16), both(99), ends(71_000, 85_000))
    assert FIRST_BATCH_RECORDS == run.state.reading.records_max


def test_reading_is_released_after_a_replay_that_leaves_nothing() -> None:
    run = replaying(step=ReplayPhase.TAKING_OVER)
    assert (20, 16) == limits(run, 19, 16)
    run.batch(ends(20, 16), ends(20, 16), ends(71_000, 85_000))
    assert set() == run.limited
