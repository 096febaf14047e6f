"""How long the watermark of a cut interval stays."""

from job.event_time.interval import Interval
from job.join_spec.sides import Side

Ends = dict[Side, dict[int, int]]
ENDS: Ends = {"left": {0: 5, 1: 7}, "right": {0: 3}}


def test_interval_is_repeated_once_every_partition_is_read_to_the_end_it_had() -> None:
    interval = Interval(4, 1_000, ENDS)

    assert not interval.is_repeated({"left": {0: 5, 1: 6}, "right": {0: 3}})
    assert not interval.is_repeated({"left": {0: 5}, "right": {0: 3}})
    assert interval.is_repeated({"left": {0: 5, 1: 7, 2: 0}, "right": {0: 9}})


def test_interval_without_known_ends_is_not_repeated() -> None:
    assert not Interval(4, 1_000).is_repeated(ENDS)


def test_interval_is_read_as_it_was_written() -> None:
    for interval in (Interval(4, 1_000), Interval(4, 0, ENDS)):
        assert interval == Interval.from_document(interval.document())
