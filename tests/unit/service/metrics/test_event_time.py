"""Event times and watermarks as metrics."""

from datetime import timedelta

from service.metrics.exposition import exposition
from tests.unit.service.builders import NOW, NOW_SECONDS, batch, event_times, side, status_after
from tests.unit.service.metrics.scrape import FULL, NAMES, names, only, samples


def test_side_without_event_times_has_none() -> None:
    values = samples(status_after(batch(left=side(event_time_max_ms=None))))

    assert [
        "streamjoin_event_time_max_timestamp_seconds{side=right}",
        "streamjoin_partition_event_time_max_timestamp_seconds{partition=1,side=right}",
    ] == sorted(only(values, "event_time_max"))
    assert {NOW_SECONDS - 4} == set(only(values, "event_time_max").values())


def test_side_watermark_follows_the_partition_that_holds_it_back() -> None:
    times = {"left": event_times(30_000), "right": event_times(20_000, held_back_by=1)}
    values = samples(status_after(batch(), event_times=times))

    assert 8.5 == values["streamjoin_side_watermark_timestamp_seconds{side=right}"]
    assert 1 == values["streamjoin_watermark_held_back{side=right}"]


def test_side_without_readable_records_holds_the_watermark_back() -> None:
    unread = status_after(batch(left=side(event_time_max_ms=None)))

    assert {
        "streamjoin_watermark_held_back{side=left}": 1,
        "streamjoin_watermark_held_back{side=right}": 0,
    } == only(samples(unread), "held_back")


def test_watermark_is_absent_before_there_is_one() -> None:
    without_watermark = names(FULL.model_copy(update={"last_batch": batch(watermark_ms=None)}))

    assert {
        "streamjoin_watermark_lag_seconds",
        "streamjoin_watermark_timestamp_seconds",
    } == NAMES - without_watermark


def test_watermark_lag_grows_while_no_records_arrive() -> None:
    body, _ = exposition(FULL, NOW + timedelta(minutes=1), "")

    assert "streamjoin_watermark_lag_seconds 75.5\n" in body.decode()
