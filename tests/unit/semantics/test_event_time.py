"""How watermarks move. test_differential.py has their rules."""

from job.semantics.event_time import SideRead, WatermarkTracker, is_behind


def test_event_times_are_floored_to_the_millisecond_before_the_delay_is_taken_off():
    watermarks = WatermarkTracker({"left": 1, "right": 1})
    for side in ("left", "right"):
        watermarks.observe(side, SideRead([(0, 1_999_999)]))

    assert 1_998 == watermarks.advance()


def test_row_at_the_watermark_is_behind_it_and_one_a_microsecond_later_is_not():
    assert is_behind(40_000_000, 40_000)
    assert not is_behind(40_000_001, 40_000)
    assert not is_behind(None, 40_000)
