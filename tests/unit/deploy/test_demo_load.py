"""The records of the demo, and those of its expected results that its load does not reach.

A run of the demo compares all other expected results with the rows of the job.
"""

from itertools import takewhile

import pytest

from deploy.demo.load import (
    BAD_REASONS,
    MATCH_AFTER_MS,
    SIDES,
    BadRecord,
    Click,
    Delivered,
    Impression,
    Record,
    demo_records,
    expected_rows,
)
from job.formats.schemas import INCOMPATIBLE_SCHEMA, UNDECODABLE_VALUE, UNKNOWN_SCHEMA
from job.protocol.reasons import REASONS

START_MS = 1_790_000_000_000
SHOWN_MS = 1_790_000_000_123


@pytest.mark.parametrize(
    ("after_ms", "matches"),
    [(-1, False), (0, True), (MATCH_AFTER_MS, True), (MATCH_AFTER_MS + 1, False)],
)
def test_both_ends_of_the_match_window_belong_to_it(after_ms: int, matches: bool) -> None:
    [found] = expected_ids(Impression(7, SHOWN_MS), Click(7, SHOWN_MS + after_ms))

    assert ("impressions/0/0|clicks/0/1" if matches else "impressions/0/0|") == found


def test_short_load_meets_every_case() -> None:
    records = [record for _, record in load(seconds=30)]
    impressions = [record for record in records if isinstance(record, Impression)]
    clicks = [record for record in records if isinstance(record, Click)]
    clicked = {click.ad_id for click in clicks}
    old = [impression for impression in impressions if impression.event_time_ms < START_MS + 10_000]

    assert 0.25 < sum(impression.ad_id not in clicked for impression in old) / len(old) < 0.4
    assert {"test", None} < {impression.campaign for impression in impressions}
    assert {"bot", None} < {click.user for click in clicks}
    assert None in {impression.ad_id for impression in impressions}
    assert 0.0 in {impression.cost for impression in impressions}
    assert {(side, reason) for side in SIDES for reason in BAD_REASONS} == {
        (record.side, record.reason) for record in records if isinstance(record, BadRecord)
    }


def test_load_meets_every_reason_that_json_has() -> None:
    of_other_formats = {UNDECODABLE_VALUE, UNKNOWN_SCHEMA, INCOMPATIBLE_SCHEMA}

    # No expression of the demo's spec can fail.
    assert set(REASONS) - of_other_formats - {"expression_failed"} == set(BAD_REASONS)


def load(*, seconds: int) -> list[tuple[int, Record]]:
    end_ms = START_MS + seconds * 1000
    return list(takewhile(lambda record: record[0] < end_ms, demo_records(START_MS, seed=7)))


def placed(*records: Record) -> list[Delivered]:
    """Each record at the position of its number."""
    return [Delivered(record, 0, offset) for offset, record in enumerate(records)]


def expected_ids(*records: Record) -> list[str]:
    return sorted(row.id for row in expected_rows(placed(*records)))
