"""A table is read to its end before its stream."""

from job.event_time.loading import Loading
from job.event_time.partitions import Partition, Partitions
from job.protocol.status import Phase
from tests.unit.query.driven import NOW_MS, Driven, both, ends


def driven(phase: Phase | None = None, read: Partitions | None = None) -> Driven:
    partitions = Partitions.none() if read is None else read
    return Driven(phase, loading=Loading("right"), partitions=partitions)


def test_stream_is_not_read_before_the_end_that_the_table_had_at_the_start() -> None:
    run = driven()
    assert 0 == run.limit("left", 0, 50)
    assert run.limit("right", 0, 1_500) is None
    run.batch(ends(0, 1_500), ends(50, 1_500), both(NOW_MS))

    assert run.limit("left", 0, 60) is None


def test_large_table_is_read_in_several_batches() -> None:
    run = driven()
    assert 0 == run.limit("left", 0, 50)
    assert 2_000 == run.limit("right", 0, 5_000)
    run.batch(ends(0, 2_000), ends(50, 5_000), both(NOW_MS))

    assert 0 == run.limit("left", 0, 50)
    assert run.state.is_loading
    assert run.state.loading is not None
    assert 3_000 == run.state.loading.records_left
    run.limit("right", 2_000, 9_000)
    run.batch(ends(0, 5_000), ends(50, 9_000), both(NOW_MS))

    assert not run.state.is_loading


def test_table_that_never_stops_growing_does_not_keep_the_stream_back() -> None:
    run = driven()
    run.limit("left", 0, 50)
    run.limit("right", 0, 100)
    run.batch(ends(0, 100), ends(50, 9_000), both(NOW_MS))

    assert run.limit("left", 0, 50) is None


def test_batch_that_reads_the_stream_reads_the_table_to_its_end() -> None:
    run = driven()
    run.limit("left", 0, 50)
    run.limit("right", 0, 100)
    run.batch(ends(0, 100), ends(50, 100), both(NOW_MS))

    run.limit("left", 0, 50)
    assert 9_000_000 == run.limit("right", 100, 9_000_000)


def test_each_start_reads_the_table_first() -> None:
    read = Partitions({0: Partition(50, 50, NOW_MS)}, {0: Partition(100, 100, NOW_MS)})
    run = driven(read=read)

    assert 50 == run.limit("left", 50, 70)
    run.limit("right", 100, 100)
    assert run.limit("left", 50, 70) is None


def test_empty_table_does_not_keep_the_stream_back() -> None:
    run = driven()
    assert 0 == run.limit("left", 0, 50)
    run.limit("right", 0, 0)

    assert run.limit("left", 0, 50) is None


def test_watermark_follows_the_stream_alone() -> None:
    run = driven()
    run.limit("left", 0, 50)
    run.limit("right", 0, 100)
    run.batch(ends(0, 100), ends(50, 100), {"left": {}, "right": {0: 90_000}})
    assert [] == run.watermarks

    run.batch(ends(50, 100), ends(50, 900), {"left": {0: 60_000}, "right": {}})
    assert [50_000] == run.watermarks


def test_stream_does_not_wait_for_the_event_times_of_the_table() -> None:
    run = driven()
    run.limit("left", 0, 50)
    run.limit("right", 0, 5)
    run.batch(ends(0, 5), ends(50, 5), both(60_000))
    run.batch(ends(5, 9), ends(50, 90), ends(3_660_000, 60_000))

    assert run.limit("left", 5, 50) is None


def test_intervals_do_not_begin_before_the_table_is_read() -> None:
    run = driven(Phase.CATCH_UP)
    run.limit("left", 0, 5)
    run.limit("right", 0, 3_000)
    run.batch(ends(0, 2_000), ends(5, 3_000), both(NOW_MS))
    assert [] == run.next_phases

    run.limit("left", 0, 5)
    run.limit("right", 2_000, 3_000)
    run.batch(ends(0, 3_000), ends(5, 3_000), both(NOW_MS))
    assert [Phase.REAL_TIME] == run.next_phases
