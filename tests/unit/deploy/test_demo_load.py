"""The records of the demo, and those of its expected results that its load does not reach.

A run of the demo compares all other expected results with the rows of the job.
"""

from datetime import timedelta
from itertools import takewhile
from pathlib import Path

import pytest

from deploy.local import demo_load
from deploy.local.demo_load import (
    BAD_REASONS,
    MATCH_AFTER_MS,
    OUT_OF_ORDER_MS,
    OUTPUT_TOPIC,
    SIDES,
    TOPICS,
    WATERMARK_DELAY_MS,
    BadRecord,
    Click,
    Delivered,
    Impression,
    Record,
    Side,
    closing_pair,
    demo_records,
    expected_rows,
)
from job.formats.schemas import INCOMPATIBLE_SCHEMA, UNDECODABLE_VALUE, UNKNOWN_SCHEMA
from job.protocol.reasons import REASONS
from job.spec.spec import spec_from_yaml

START_MS = 1_790_000_000_000
SHOWN_MS = 1_790_000_000_123


@pytest.mark.parametrize(
    ("after_ms", "matches"),
    [(-1, False), (0, True), (MATCH_AFTER_MS, True), (MATCH_AFTER_MS + 1, False)],
)
def test_both_ends_of_the_match_window_belong_to_it(after_ms: int, matches: bool) -> None:
    [found] = expected_ids(Impression(7, SHOWN_MS), Click(7, SHOWN_MS + after_ms))

    assert ("impressions/0/0|clicks/0/1" if matches else "impressions/0/0|") == found


def test_closing_pair_moves_the_watermark_past_the_newest_window() -> None:
    impression, click = closing_pair(SHOWN_MS)

    assert impression.event_time_ms - WATERMARK_DELAY_MS > SHOWN_MS + MATCH_AFTER_MS
    assert ["impressions/0/0|clicks/0/1"] == expected_ids(impression, click)


def test_same_seed_gives_the_same_load() -> None:
    assert load(seconds=5) == load(seconds=5)
    assert load(seconds=5) != load(seconds=5, seed=1)


def test_records_are_in_order_of_arrival_and_within_the_delay() -> None:
    arrivals = [arrival for arrival, _ in load(seconds=20)]
    assert sorted(arrivals) == arrivals

    newest: dict[Side, int] = {"left": 0, "right": 0}
    lateness = []
    for _, record in load(seconds=20):
        if not isinstance(record, BadRecord):
            newest[record.side] = max(newest[record.side], record.event_time_ms)
            lateness.append(newest[record.side] - record.event_time_ms)
    assert OUT_OF_ORDER_MS / 2 < max(lateness) <= OUT_OF_ORDER_MS


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


def test_constants_are_those_of_the_spec() -> None:
    spec = spec_from_yaml(Path(demo_load.__file__).with_name("demo.yaml").read_text(), {})

    assert spec.join.match_window is not None
    assert timedelta(milliseconds=MATCH_AFTER_MS) == spec.join.match_window.after
    assert timedelta(0) == spec.join.match_window.before
    for side in (spec.left, spec.right):
        assert timedelta(milliseconds=WATERMARK_DELAY_MS) == side.watermark_delay
    assert {"left": spec.left.topic, "right": spec.right.topic} == dict(TOPICS)
    assert OUTPUT_TOPIC == spec.output.topic


def load(*, seconds: int, seed: int = 7) -> list[tuple[int, Record]]:
    end_ms = START_MS + seconds * 1000
    return list(takewhile(lambda record: record[0] < end_ms, demo_records(START_MS, seed)))


def placed(*records: Record) -> list[Delivered]:
    """Each record at the position of its number."""
    return [Delivered(record, 0, offset) for offset, record in enumerate(records)]


def expected_ids(*records: Record) -> list[str]:
    return sorted(row.id for row in expected_rows(placed(*records)))
