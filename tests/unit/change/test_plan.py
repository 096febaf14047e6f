"""The plan of a change in words and as JSON."""

from job.change.comparison import compare
from job.change.plan import ChangePlan, described
from job.event_time.filters import EarlierFilters
from job.event_time.interval import Interval
from job.replay.replay import Replay
from job.spec.sides import Side
from tests.unit.replay.test_replay import REPLAY
from tests.unit.specs import plan


def text(
    replay: Replay,
    late_rows: int | None,
    repeats: Interval | None = None,
    filters: EarlierFilters | None = None,
) -> str:
    old, new = plan(), plan(checkpoint="/checkpoints/new")
    needed_ms: dict[Side, int] = {"left": 50_000, "right": 55_000}
    change = ChangePlan(new, compare(old, new), replay, needed_ms, late_rows, repeats, filters)
    shown = described(change, cores=1)
    assert replay.possibly_late_records == shown.facts["possibly_late_records"]
    assert late_rows == shown.facts["late_rows_of_the_job"]
    return shown.text


def test_records_whose_lateness_is_unknown_are_counted() -> None:
    late = text(REPLAY, 7).split("\nLate rows\n")[1]

    assert late.startswith(
        "  2 of the records that are read again may have been late in the old query:\n"
    )
    assert "the running job has counted 7 late rows since its start\n" in late
    assert "since its start" not in text(REPLAY, None)


def test_late_rows_that_are_all_known_stay_out() -> None:
    known = REPLAY.model_copy(update={"late_unknown_before": REPLAY.starts})

    assert "\nLate rows\n  the new query joins no rows that were late in the old query\n" in text(
        known, 7
    )


def test_interval_that_the_old_query_repeats_first_is_shown_with_the_records_that_are_left() -> (
    None
):
    ends = {side: {0: read[0] + 4} for side, read in REPLAY.ends.items()}
    interval = Interval(batch_id=7, watermark_ms=60_000)

    assert "waits" not in text(REPLAY, None)
    assert "until the old query has repeated interval 7, which was interrupted" in text(
        REPLAY, None, interval
    )
    assert "records are left" not in text(REPLAY, None, interval)
    left = interval.repeated_until(ends)
    assert "; 8 records are left. Then" in text(REPLAY, None, left)


def test_records_that_were_read_with_other_filters_are_counted() -> None:
    starts = REPLAY.starts
    offsets = {side: {0: of_side[0] + 3} for side, of_side in starts.items()}
    filters = EarlierFilters(until_ms=60_000, offsets=offsets, watermark_ms=0, filters={})

    shown = text(REPLAY, None, filters=filters)

    assert "6 of the records that are read again were read with other filters before 1970" in shown
    none = filters.model_copy(update={"offsets": starts})
    assert "other filters" not in text(REPLAY, None, filters=none)
