import json
from datetime import timedelta
from typing import Any

import pytest

from job.proposal.choices import distances, event_times, key_pairs, longer
from job.proposal.columns import Table, table_of
from tests.sql_worker import ROWS
from tests.unit.proposal.samples import T0_MS, records


def table(*rows: dict[str, Any]) -> Table:
    return table_of(records(*(json.dumps(row) for row in rows)))


def test_key_is_what_both_samples_share_and_what_identifies_a_row() -> None:
    orders = table(*({"id": n, "country": "DE", "lines": 1} for n in range(9)))
    payments = table(*({"order_id": n, "country": "DE", "cents": 100 + n} for n in range(5, 14)))
    best, *others = key_pairs(orders, payments)
    assert ("id", "order_id", 4) == (best.left, best.right, best.shared)
    assert ("country", "country") in [(pair.left, pair.right) for pair in others]


def test_key_of_the_same_name_is_proposed_although_the_samples_share_no_value() -> None:
    [best] = key_pairs(table({"user_id": "a", "n": 1}), table({"user_id": "b", "m": 2}))
    assert ("user_id", "user_id", 0) == (best.left, best.right, best.shared)


def test_columns_of_different_types_are_no_key() -> None:
    assert [] == key_pairs(table({"id": 1}), table({"id": "1"}))


@pytest.mark.parametrize(
    ("row", "column"),
    [
        ({"n": 5, "at": "2026-01-01T00:00:00Z"}, "at"),
        ({"n": 5, "at": T0_MS - 60_000}, "at"),
        ({"expires": "2026-02-01T00:00:00Z", "at": "2025-12-31T23:00:00+01:00"}, "at"),
        ({"created": "2025-06-01T00:00:00Z", "at": "2025-12-31T23:59:00Z"}, "at"),
        ({"n": T0_MS // 1000}, "record_timestamp"),
        ({"at": "yesterday"}, "record_timestamp"),
        ({"at": "12345"}, "record_timestamp"),
        ({"at": "2026-01-01T00:00:00 Europe/Berlin"}, "at"),
    ],
)
def test_event_time_is_the_time_nearest_to_the_record_and_never_far_ahead(
    row: dict[str, Any], column: str
) -> None:
    assert column == event_times(table(row), ROWS)[0].column


def test_column_without_a_time_in_one_record_is_no_event_time() -> None:
    rows = table({"at": "2026-01-01T00:00:00Z"}, {"at": None}, {"b": 1})
    assert ["record_timestamp"] == [each.column for each in event_times(rows, ROWS)]


def test_disorder_is_counted_in_each_partition() -> None:
    def of(partition: int, *seconds: int) -> Any:
        values = (json.dumps({"at": T0_MS + each * 1000}) for each in seconds)
        return records(*values, partition=partition, at_ms=T0_MS + 3_000_000)

    rows = table_of([*of(0, 900, 950), *of(1, 10, 14, 11, 13)])
    assert 3_000_000 == event_times(rows, ROWS)[0].disorder_us


def test_distance_is_that_to_the_nearest_left_row_of_the_key() -> None:
    left = table(*({"k": 1, "at": T0_MS + at} for at in (0, 5_000)), {"k": 2, "at": T0_MS})
    right = table({"k": 1, "at": T0_MS + 4_000}, {"k": 1, "at": T0_MS + 9_000}, {"k": 3, "at": 1})
    times = (event_times(left, ROWS)[0], event_times(right, ROWS)[0])
    assert "record_timestamp" == times[1].column  # at: 1 is not near
    right = table({"k": 1, "at": T0_MS + 4_000}, {"k": 1, "at": T0_MS + 9_000})
    found = distances(left, right, [("k", "k")], (times[0], event_times(right, ROWS)[0]))
    assert [-1_000_000, 4_000_000] == found


@pytest.mark.parametrize(
    ("seconds", "proposed"),
    [
        (0, timedelta(0)),
        (0.5, timedelta(seconds=1)),
        (5, timedelta(seconds=10)),
        (45, timedelta(minutes=5)),
        (86_400 * 100, timedelta(days=150)),
    ],
)
def test_durations_are_round_and_have_a_margin(seconds: float, proposed: timedelta) -> None:
    assert proposed == longer(round(seconds * 1_000_000))
