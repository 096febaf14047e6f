"""The watermark history: the watermark that a row met, and the pace."""

import pytest

from job.event_time.history import Bounds, Pace, WatermarkLine, pace, watermarks_at_read


def line(
    minute: int, watermark_ms: int | None, left: dict[int, int] | None = None
) -> WatermarkLine:
    return WatermarkLine(at_ms=minute * 60_000, watermark_ms=watermark_ms, left_offsets=left or {})


OF_THE_RUN_BEFORE = line(0, 50)
LINES = [line(1, None, {0: 5}), line(2, 100, {0: 10}), line(3, 200, {0: 10}), line(4, 300, {0: 12})]


@pytest.mark.parametrize(
    ("offset", "bounds"),
    [(4, None), (5, Bounds(50, 100)), (9, Bounds(50, 100)), (11, Bounds(200, 300)), (12, None)],
)
def test_watermark_of_a_record_is_between_the_lines_around_its_reading(
    offset: int, bounds: Bounds | None
) -> None:
    assert bounds == watermarks_at_read([OF_THE_RUN_BEFORE, *LINES], "left", 0, offset)


def test_row_before_the_first_watermark_has_no_bounds() -> None:
    assert watermarks_at_read(LINES, "left", 0, 5) is None


def test_partition_that_is_not_in_the_history_has_no_watermark() -> None:
    assert watermarks_at_read(LINES, "left", 1, 5) is None
    assert watermarks_at_read(LINES, "right", 0, 5) is None


def test_pace_is_that_of_the_last_ten_minutes() -> None:
    lines = [line(0, 0), line(10, 600_000), line(15, 750_000)]
    found = pace(lines, now_ms=20 * 60_000, watermark_ms=900_000)

    assert Pace(20 * 60_000, 900_000, 0.5) == found
    assert found is not None
    assert 22 * 60_000 == found.clock_ms(960_000)


def test_watermark_that_stands_reaches_no_time() -> None:
    found = pace([line(19, 100)], now_ms=20 * 60_000, watermark_ms=100)

    assert found is not None
    assert found.clock_ms(200) is None
    # It advanced for seven minutes, and has stood for three.
    lines = [line(10, 0), line(16, 360_000), line(17, 420_000), line(19, 420_000)]
    stopped = pace(lines, now_ms=20 * 60_000, watermark_ms=420_000)
    assert stopped is not None
    assert stopped.clock_ms(500_000) is None
    assert pace([line(1, 100)], now_ms=20 * 60_000, watermark_ms=100) is None
    assert pace([line(19, None)], now_ms=20 * 60_000, watermark_ms=100) is None


def test_pace_is_that_since_the_last_jump() -> None:
    now = 20 * 60_000
    # An hour is read in the sixteenth minute.
    lines = [line(14, 0), line(15, 60_000), line(16, 3_660_000), line(18, 3_720_000)]
    found = pace(lines, now_ms=now, watermark_ms=3_780_000)
    assert found is not None
    assert 0.5 == found.rate

    assert pace([line(19, 0)], now_ms=now, watermark_ms=3_600_000) is None
    steady = pace([line(18, 0), line(19, 3_600_000)], now_ms=now, watermark_ms=7_200_000)
    assert steady is not None
    assert 60.0 == steady.rate


def test_watermark_that_advances_in_long_intervals_has_no_known_pace() -> None:
    lines = [line(10, 0), line(15, 300_000), line(19, 540_000)]

    assert pace(lines, now_ms=20 * 60_000, watermark_ms=600_000, interval_ms=60_000) is not None
    assert pace(lines, now_ms=20 * 60_000, watermark_ms=600_000, interval_ms=60_001) is None
