"""How long the watermark of a cut interval stays."""

from job.event_time.interval import Interval
from job.spec.sides import Side

Ends = dict[Side, dict[int, int]]
ENDS: Ends = {"left": {0: 5, 1: 7}, "right": {0: 3}}


def test_interval_is_repeated_once_every_partition_is_read_to_the_end_it_had() -> None:
    interval = Interval(batch_id=4, watermark_ms=1_000, repeat_until=ENDS)

    assert not interval.is_repeated({"left": {0: 5, 1: 6}, "right": {0: 3}})
    assert not interval.is_repeated({"left": {0: 5}, "right": {0: 3}})
    assert interval.is_repeated({"left": {0: 5, 1: 7, 2: 0}, "right": {0: 9}})


def test_interval_without_known_ends_is_not_repeated() -> None:
    assert not Interval(batch_id=4, watermark_ms=1_000).is_repeated(ENDS)


def test_records_that_are_not_repeated_yet_are_counted() -> None:
    interval = Interval(batch_id=4, watermark_ms=1_000, repeat_until=ENDS)
    assert 3 == interval.records_left({"left": {0: 3, 1: 6}, "right": {0: 9}})
    assert 0 == interval.records_left({"left": {0: 5, 1: 7}, "right": {0: 3}})
    # Before the first batch.
    assert interval.records_left(None) is None
    assert Interval(batch_id=4, watermark_ms=1_000).records_left({"left": {}, "right": {}}) is None


def test_interval_is_read_as_it_was_written() -> None:
    for interval in (
        Interval(batch_id=4, watermark_ms=1_000),
        Interval(batch_id=4, watermark_ms=0, repeat_until=ENDS),
        Interval(batch_id=4, watermark_ms=0, repeat_until=ENDS, earlier=(1, 3)),
    ):
        assert interval == Interval.model_validate_json(interval.model_dump_json())


def test_interval_records_the_last_ones_before_it() -> None:
    first = Interval.after(None, 4, 1_000)
    second = Interval.after(first.repeated_until(ENDS), 7, 2_000)
    again = Interval.after(second, 7, 3_000)  # the same batch is planned again

    assert (frozenset({4}), None) == (first.batch_ids, first.repeat_until)
    assert Interval(batch_id=7, watermark_ms=2_000, repeat_until=None, earlier=(4,)) == second
    assert Interval(batch_id=7, watermark_ms=3_000, repeat_until=None, earlier=(4,)) == again

    newest = first
    for batch_id in range(5, 500):
        newest = Interval.after(newest, batch_id, 1_000)
    assert frozenset(range(399, 500)) == newest.batch_ids
