"""How watermarks move."""

from job.semantics.event_time import BatchWatermarks, WatermarkTracker, is_behind


def tracker(policy="min", left=10_000, right=10_000):
    return WatermarkTracker({"left": left, "right": right}, policy)


def test_a_sides_watermark_is_its_newest_event_time_minus_its_delay():
    watermarks = tracker(left=10_000, right=1)
    watermarks.observe("left", [30_000_000, 50_000_000, 40_000_000])
    watermarks.observe("right", [45_000_000])

    assert 40_000 == watermarks.side_watermark_ms("left")
    assert 44_999 == watermarks.side_watermark_ms("right")


def test_the_lower_side_decides_by_default_and_the_higher_under_max():
    for policy, expected in (("min", 20_000), ("max", 40_000)):
        watermarks = tracker(policy)
        watermarks.observe("left", [50_000_000])
        watermarks.observe("right", [30_000_000])
        assert expected == watermarks.advance()


def test_the_watermark_never_goes_back():
    watermarks = tracker()
    watermarks.observe("left", [50_000_000])
    watermarks.observe("right", [50_000_000])
    watermarks.advance()
    watermarks.observe("left", [20_000_000])
    watermarks.observe("right", [20_000_000])

    assert 40_000 == watermarks.advance()


def test_a_side_that_has_shown_nothing_holds_the_watermark_at_the_epoch():
    watermarks = tracker()
    watermarks.observe("left", [50_000_000])
    watermarks.observe("right", [])

    assert 0 == watermarks.advance()
    assert watermarks.side_watermark_ms("right") is None


def test_after_a_restart_the_watermark_stands_until_every_side_has_sent_again():
    watermarks = tracker()
    for side in ("left", "right"):
        watermarks.observe(side, [50_000_000])
    watermarks.advance()
    watermarks.forget_sides()
    watermarks.observe("left", [90_000_000])
    assert 40_000 == watermarks.advance()

    watermarks.observe("right", [80_000_000])
    assert 70_000 == watermarks.advance()


def test_event_times_are_floored_to_the_millisecond_before_the_delay_is_taken_off():
    watermarks = tracker(left=1, right=1)
    for side in ("left", "right"):
        watermarks.observe(side, [1_999_999])

    assert 1_998 == watermarks.advance()


def test_a_null_event_time_counts_as_the_epoch():
    watermarks = tracker()
    watermarks.observe("left", [None])

    assert -10_000 == watermarks.side_watermark_ms("left")


def test_late_rows_are_judged_by_the_watermark_of_the_batch_before():
    first = BatchWatermarks()
    second = first.next(40_000)
    third = second.next(50_000)

    assert BatchWatermarks(late=0, eviction=40_000) == second
    assert BatchWatermarks(late=40_000, eviction=50_000) == third


def test_a_row_at_the_watermark_is_behind_it_and_one_a_microsecond_later_is_not():
    assert is_behind(40_000_000, 40_000)
    assert not is_behind(40_000_001, 40_000)
    assert not is_behind(None, 40_000)
