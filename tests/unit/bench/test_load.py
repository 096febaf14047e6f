"""The load of the benchmark, and the comparison of results. Each run checks the expected ones."""

from dataclasses import replace
from itertools import pairwise

import pytest

from bench.figures import Spread, percentile
from bench.latency import Stream
from bench.load import (
    FIRST_EVENT_MS,
    HOUR_MS,
    WORKLOADS,
    Impression,
    Row,
    Workload,
    click,
    click_alone,
    closing_events,
    closing_time,
    events,
    impression,
    joined,
    partition_of,
    row_of,
    row_set,
)
from bench.running import Task

INNER, LEFT_OUTER, UNEVEN = (WORKLOADS[name] for name in ("inner", "left_outer", "uneven"))
TABLE = WORKLOADS["table"]
ROW = Row(ad_id=7, campaign="c7", user="u7", shown_at=1_000, clicked_at=2_000)
OTHER = ROW._replace(ad_id=8)


def shown(ad_id: int, at: int) -> Impression:
    return impression(ad_id, at, cost=0.5)


# Expected results


def test_after_the_closing_events_no_impression_waits_and_no_more_results_follow() -> None:
    impressions, _ = events(LEFT_OUTER, 2_000)
    at = closing_time(impressions, LEFT_OUTER)
    partitions, closing_shown, closing_clicked = zip(*closing_events(at, LEFT_OUTER), strict=True)
    last = max(event.shown_at for event in impressions)
    waits = LEFT_OUTER.match_window_ms + LEFT_OUTER.watermark_delay_ms

    assert tuple(range(LEFT_OUTER.partitions)) == partitions
    assert at - last > waits
    assert [] == list(joined(closing_shown, closing_clicked, INNER))
    assert not {event.ad_id for event in closing_shown} & {event.ad_id for event in closing_clicked}
    assert all(event.ad_id < 0 for event in (*closing_shown, *closing_clicked))
    assert {at} == {event.shown_at for event in closing_shown}
    assert {at} == {event.clicked_at for event in closing_clicked}


def test_side_that_is_not_in_a_row_is_read_as_none() -> None:
    clicked = '"ad_id": 7, "user": "u7", "clicked_at": "2023-11-14T22:13:20Z"'
    value = f'{{{clicked}, "campaign": null, "shown_at": null}}'

    assert click_alone(click(7, 1_700_000_000_000)) == row_of(value.encode())


# Comparing sets of rows


def test_order_of_rows_does_not_matter() -> None:
    assert row_set([ROW, OTHER, ROW]) == row_set([OTHER, ROW, ROW])


@pytest.mark.parametrize(
    "wrong",
    [
        [ROW, OTHER._replace(clicked_at=2_001)],
        [ROW, OTHER._replace(user="u8")],
        [ROW, ROW],
        [OTHER, OTHER],
        [ROW],
        [ROW, OTHER, OTHER],
    ],
)
def test_changed_lost_or_repeated_row_is_noticed(wrong: list[Row]) -> None:
    assert row_set([ROW, OTHER]) != row_set(wrong)


def test_values_that_move_between_rows_are_noticed() -> None:
    first, second = ROW._replace(shown_at=1), OTHER._replace(shown_at=2)
    swapped = ROW._replace(shown_at=2), OTHER._replace(shown_at=1)

    assert row_set([first, second]) != row_set(swapped)


# The events


def test_same_workload_has_the_same_events() -> None:
    assert events(INNER, 500) == events(INNER, 500)
    assert events(INNER, 500) != events(Workload("inner", seed=INNER.seed + 1), 500)


def test_every_impression_is_clicked_once_and_a_few_clicks_match_nothing() -> None:
    impressions, clicks = events(INNER, 5_000)
    shown_at = {event.ad_id: event.shown_at for event in impressions}
    delays = [event.clicked_at - shown_at[event.ad_id] for event in clicks]

    assert list(range(5_000)) == sorted(event.ad_id for event in impressions)
    assert list(range(5_000)) == sorted(event.ad_id for event in clicks)
    assert 0 < sum(delay < 0 for delay in delays) < 250
    assert 0 < sum(delay > INNER.match_window_ms for delay in delays) < 250
    assert 4_500 < row_set(joined(impressions, clicks, INNER)).count < 5_000


def test_share_of_impressions_is_never_clicked() -> None:
    impressions, clicks = events(LEFT_OUTER, 5_000)
    rows = list(joined(impressions, clicks, LEFT_OUTER))

    assert 5_000 == len(impressions) == len(rows)
    assert 0.68 < len(clicks) / len(impressions) < 0.72
    assert 0.3 < sum(row.user is None for row in rows) / len(rows) < 0.34


def test_impressions_are_spread_evenly_over_event_time() -> None:
    at = sorted(event.shown_at for event in events(INNER, 3_000)[0])

    assert 2_999 == at[-1] - at[0]
    assert {1} == {later - earlier for earlier, later in pairwise(at)}


def test_events_are_out_of_order_but_none_is_late() -> None:
    sides = [
        [event.shown_at for event in events(INNER, 20_000)[0]],
        [event.clicked_at for event in events(INNER, 20_000)[1]],
    ]

    for at in sides:
        behind, latest = 0, 0
        for moment in at:
            latest = max(latest, moment)
            behind = max(behind, latest - moment)
        assert INNER.out_of_order_ms / 2 < behind <= INNER.out_of_order_ms


def test_uneven_partitions_are_in_order_and_differ_in_their_event_times() -> None:
    impressions, clicks = events(UNEVEN, 20_000)
    shown: list[list[int]] = [[], []]
    clicked: list[list[int]] = [[], []]
    for event in impressions:
        shown[partition_of(event, UNEVEN)].append(event.shown_at - FIRST_EVENT_MS)
    for event in clicks:
        clicked[partition_of(event, UNEVEN)].append(event.clicked_at)

    assert all(sorted(at) == at for at in (*shown, *clicked))
    assert [10_000, 10_000] == [len(at) for at in shown] == [len(at) for at in clicked]
    assert HOUR_MS // 2 == shown[0][5_000]
    assert 9_000 == sum(at < 300_000 for at in shown[1])
    assert all(0.99 * HOUR_MS < at[-1] < HOUR_MS for at in shown)


def test_clicks_on_a_table_are_joined_whatever_their_times_and_come_after_it() -> None:
    impressions, clicks = events(TABLE, 5_000)
    without_window = replace(TABLE, match_window_ms=0)

    assert 5_000 == len(impressions) == len(clicks)
    assert 5_000 == row_set(joined(impressions, clicks, without_window)).count
    assert max(event.shown_at for event in impressions) < min(event.clicked_at for event in clicks)


def test_keys_of_a_table_and_of_its_stream_come_in_random_order() -> None:
    for side in events(TABLE, 5_000):
        ids = [event.ad_id for event in side]
        rising = sum(later > earlier for earlier, later in pairwise(ids))

        assert 2_300 < rising < 2_700


def test_stream_writes_the_rows_of_a_table_again_without_a_change() -> None:
    stream = Stream(Task(TABLE, "127.0.0.1:9092", "table", "clicks", "out"), rate=1_000)
    (first, clicked), (again, later) = stream.pair(7), stream.pair(100_007)

    assert first == again
    assert (clicked.ad_id, clicked.clicked_at + 100_000) == (later.ad_id, later.clicked_at)


# Figures


def test_percentile_is_a_value_that_occurred() -> None:
    values = [float(value) for value in range(1, 101)]

    assert [50.0, 90.0, 99.0, 100.0] == [percentile(values, at) for at in (50, 90, 99, 100)]
    assert [1.0, 2.0, 2.0] == [percentile([1.0, 2.0], at) for at in (50, 51, 100)]
    assert 3.0 == percentile([3.0], 0)


def test_no_values_have_no_percentile() -> None:
    with pytest.raises(ValueError, match="no values"):
        percentile([], 50)


def test_spread_is_the_median_between_the_extremes() -> None:
    assert Spread(median=3, lowest=1, highest=9) == Spread.of([9, 1, 3])
    assert Spread(median=2, lowest=1, highest=3) == Spread.of([3, 1])
