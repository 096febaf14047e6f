"""Event times of sides and partitions as metrics."""

from tests.unit.service.builders import NOW_SECONDS, batch, event_times, side, status_after
from tests.unit.service.test_metrics import PARTITION, only, samples


def test_a_side_without_event_times_says_none() -> None:
    values = samples(status_after(batch(left=side(event_time_max_ms=None))))

    assert [
        "streamjoin_event_time_max_timestamp_seconds{side=right}",
        f"{PARTITION}{{partition=1,side=right}}",
    ] == sorted(only(values, "event_time_max"))
    assert {NOW_SECONDS - 4} == set(only(values, "event_time_max").values())


def test_side_watermark_follows_the_partition_that_holds_it_back() -> None:
    times = {"left": event_times(30_000), "right": event_times(20_000, held_back_by=1)}
    values = samples(status_after(batch(), event_times=times))

    assert 8.5 == values["streamjoin_side_watermark_timestamp_seconds{side=right}"]
    assert 1 == values["streamjoin_watermark_held_back{side=right}"]
