"""Event times of a sample."""

import json
from typing import Any

import pytest

from job.proposal.columns import Table, quoted_names, table_of
from job.proposal.fields import names_of
from job.proposal.times import EventTime, event_times
from tests.sql_worker import ROWS, SQL
from tests.unit.proposal.samples import T0_MS, records


def table(*rows: dict[str, Any]) -> Table:
    return table_of(records(*(json.dumps(row) for row in rows)))


def times_of(found: Table) -> list[EventTime]:
    return event_times(found, ROWS, quoted_names(names_of(found), SQL))


@pytest.mark.parametrize(
    ("row", "sql"),
    [
        ({"n": 5, "at": "2026-01-01T00:00:00Z"}, "at"),
        ({"n": 5, "at": T0_MS - 60_000}, "at"),
        ({"expires": "2026-02-01T00:00:00Z", "at": "2025-12-31T23:00:00+01:00"}, "at"),
        ({"created": "2025-06-01T00:00:00Z", "at": "2025-12-31T23:59:00Z"}, "at"),
        ({"n": T0_MS // 1000}, "timestamp_seconds(n)"),
        ({"n": 1_200_000_000}, "record_timestamp"),
        ({"created": 1_200_000_000}, "timestamp_seconds(created)"),
        ({"tweet_id": T0_MS * 1_000_000}, "record_timestamp"),
        ({"at": "yesterday"}, "record_timestamp"),
        ({"at": "12345"}, "record_timestamp"),
        ({"at": "2026-01-01T00:00:00 Europe/Berlin"}, "at"),
    ],
)
def test_event_time_is_the_time_nearest_to_the_record_and_never_far_ahead(
    row: dict[str, Any], sql: str
) -> None:
    assert sql == times_of(table(row))[0].sql


def test_column_without_a_time_in_one_record_is_no_event_time() -> None:
    rows = table({"at": "2026-01-01T00:00:00Z"}, {"at": None}, {"b": 1})
    assert ["record_timestamp"] == [time.sql for time in times_of(rows)]


@pytest.mark.parametrize(
    ("text", "is_local"),
    [
        ("2026-01-01T00:00:00Z", False),
        ("2026-01-01 00:00:00", True),
        ("2026-01-01T00:00:00.5+0100", False),
        ("2026-01-01T00:00:00-05", False),
        ("2026-01-01", True),
        ("2026-01-01 00:00:00 UTC", False),
    ],
)
def test_text_without_an_offset_is_local(text: str, is_local: bool) -> None:
    assert is_local == times_of(table({"created": text}))[0].is_local
