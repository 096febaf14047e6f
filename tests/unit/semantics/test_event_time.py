"""How watermarks move."""

from job.semantics.event_time import (
    BatchWatermarks,
    HeldBack,
    SideRead,
    WatermarkTracker,
    is_behind,
)


def tracker(left=10_000, right=10_000):
    return WatermarkTracker({"left": left, "right": right})


def observe(watermarks, side, event_times_us):
    """All of one partition, none of it left unread."""
    watermarks.observe(side, SideRead([(0, at) for at in event_times_us]))


def test_sides_watermark_is_its_newest_event_time_minus_its_delay():
    watermarks = tracker(left=10_000, right=1)
    observe(watermarks, "left", [30_000_000, 50_000_000, 40_000_000])
    observe(watermarks, "right", [45_000_000])

    assert 40_000 == watermarks.side_watermark_ms("left")
    assert 44_999 == watermarks.side_watermark_ms("right")


def test_lower_side_decides():
    watermarks = tracker()
    observe(watermarks, "left", [50_000_000])
    observe(watermarks, "right", [30_000_000])

    assert 20_000 == watermarks.advance()


def test_watermark_never_goes_back():
    watermarks = tracker()
    observe(watermarks, "left", [50_000_000])
    observe(watermarks, "right", [50_000_000])
    watermarks.advance()
    observe(watermarks, "left", [20_000_000])
    observe(watermarks, "right", [20_000_000])

    assert 40_000 == watermarks.advance()


def test_side_that_has_shown_nothing_holds_the_watermark_at_the_epoch():
    watermarks = tracker()
    observe(watermarks, "left", [50_000_000])
    observe(watermarks, "right", [])

    assert 0 == watermarks.advance()
    assert watermarks.side_watermark_ms("right") is None


def test_after_the_times_are_lost_the_watermark_stands_until_every_side_has_sent_again():
    watermarks = tracker()
    for side in ("left", "right"):
        observe(watermarks, side, [50_000_000])
    watermarks.advance()
    watermarks.forget_sides()
    observe(watermarks, "left", [90_000_000])
    assert 40_000 == watermarks.advance()

    observe(watermarks, "right", [80_000_000])
    assert 70_000 == watermarks.advance()


def test_event_times_are_floored_to_the_millisecond_before_the_delay_is_taken_off():
    watermarks = tracker(left=1, right=1)
    for side in ("left", "right"):
        observe(watermarks, side, [1_999_999])

    assert 1_998 == watermarks.advance()


def test_null_event_time_moves_nothing():
    watermarks = tracker()
    observe(watermarks, "left", [None])

    assert watermarks.side_watermark_ms("left") is None


def test_side_in_a_backlog_is_as_far_as_its_slowest_partition_until_that_is_read():
    watermarks = tracker()
    watermarks.observe("right", SideRead([(0, 90_000_000)]))
    watermarks.observe("left", SideRead([(0, 50_000_000), (1, 30_000_000)], backlog={0, 1}))
    assert 20_000 == watermarks.advance()
    assert HeldBack("left", 1, 30_000) == watermarks.held_back_by

    watermarks.observe("left", SideRead([(1, 70_000_000)], backlog={0}))
    assert 40_000 == watermarks.advance()

    watermarks.observe("left", SideRead([(0, 60_000_000)]))
    assert 60_000 == watermarks.advance()
    assert watermarks.held_back_by is None


def test_partition_whose_time_is_lost_holds_its_side_back():
    watermarks = tracker()
    for side in ("left", "right"):
        watermarks.observe(side, SideRead([(0, 50_000_000), (1, 50_000_000)], backlog={0, 1}))
    watermarks.advance()
    watermarks.forget_sides()
    for side in ("left", "right"):
        watermarks.observe(side, SideRead([(0, 90_000_000)], backlog={1}))

    assert 40_000 == watermarks.advance()
    assert HeldBack("left", 1, None) == watermarks.held_back_by


def test_late_rows_are_judged_by_the_watermark_of_the_batch_before():
    first = BatchWatermarks()
    second = first.next(40_000)
    third = second.next(50_000)

    assert BatchWatermarks(late=0, eviction=40_000) == second
    assert BatchWatermarks(late=40_000, eviction=50_000) == third


def test_row_at_the_watermark_is_behind_it_and_one_a_microsecond_later_is_not():
    assert is_behind(40_000_000, 40_000)
    assert not is_behind(40_000_001, 40_000)
    assert not is_behind(None, 40_000)
