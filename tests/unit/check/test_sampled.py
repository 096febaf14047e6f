"""What a sample shows: bad records, null columns, disorder, rates and keys."""

from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from job.check.finding import Finding
from job.check.reading import ReadRecord
from job.check.sampled import findings, measured, overlap
from job.proposal.sample import Sample
from job.semantics.input_records import InputRecord
from job.spec.value_format import Format

SIDE: Any = SimpleNamespace(
    side="left",
    topic="impressions",
    format=Format.JSON,
    envelope=None,
    watermark_delay=timedelta(seconds=2),
    schema=SimpleNamespace(
        columns=[SimpleNamespace(name=name) for name in ("ad_id", "campaign", "cost")]
    ),
)


def read(number: int, **changes: Any) -> ReadRecord:
    """A readable record, a second after the one before it."""
    value = changes.pop("value", b'{"ad_id": 1, "Campaign": "x"}')
    at = 1_000_000 * number
    record = InputRecord(value, number, changes.pop("partition", 0), timestamp_us=at)
    base: dict[str, Any] = {
        "reason": None,
        "message": "",
        "passes": True,
        "event_time_us": at,
        "key": (f"k{number}",),
        "key_text": str(number),
        "nulls": frozenset(),
    }
    return ReadRecord(record, **{**base, **changes})


def bad(number: int, reason: str) -> ReadRecord:
    return read(number, reason=reason, message="why", passes=False, event_time_us=None, key=None)


def texts(*records: ReadRecord) -> list[str]:
    found = findings(SIDE, records, measured(SIDE, records))
    return [f"{each.level}: {each.text}" for each in found]


def test_bad_records_are_counted_by_reason_with_the_message_of_the_first() -> None:
    shown = texts(bad(0, "tombstone"), bad(1, "malformed_json"), bad(2, "malformed_json"), read(3))

    assert [
        "warning: 2 of 4 records are bad (malformed_json), e.g. 0/1: why",
        "warning: 1 of 4 records are bad (tombstone), e.g. 0/0: why",
    ] == shown[:2]
    assert not measured(SIDE, [bad(0, "tombstone"), read(1)]).are_all_bad
    assert measured(SIDE, [bad(0, "tombstone")]).are_all_bad
    assert 1 == len(texts(bad(0, "tombstone")))


def test_tombstone_of_a_table_is_no_record_without_fields() -> None:
    nulls = frozenset({"campaign"})

    shown = texts(read(0, value=None, nulls=nulls), read(1, nulls=nulls))

    assert "column campaign is null in all 2 records: the records have Campaign" in shown[0]


def test_column_that_is_always_null_is_named_with_the_field_in_another_case() -> None:
    nulls = frozenset({"campaign", "cost"})

    shown = texts(read(0, nulls=nulls), read(1, nulls=nulls | {"ad_id"}))

    assert shown[0].startswith("warning: column campaign is null in all 2 records: the records ")
    assert shown[0].endswith(" have Campaign, and names are case-sensitive")
    assert "warning: column cost is null in all 2 records" == shown[1]


def test_disorder_is_compared_with_the_watermark_delay_by_partition() -> None:
    """Another partition does not make a row late."""
    in_order = [read(10), read(9), read(1, partition=1)]

    assert texts(*in_order)[-1].startswith("info: rows are up to ")
    assert "rows are up to 1.0 s out of order, watermark_delay is 2 seconds" in texts(*in_order)[-1]
    assert (
        "3.0 s out of order: 1 of 2 are further behind than watermark_delay, 2 seconds, and are "
        "late unless the other side is further behind; a longer left.watermark_delay keeps them"
        in texts(read(10), read(7))[-1]
    )


@pytest.mark.parametrize(("count", "rate"), [(40, 1.0), (10, None)])
def test_rates_of_partitions_are_added_if_the_sample_is_long_enough(
    count: int, rate: float | None
) -> None:
    records = [read(n, partition=n % 2).record for n in range(count)]

    assert rate == Sample("impressions", records, []).rate


def test_filtered_records_and_null_keys_are_reported() -> None:
    filtered = read(0, passes=False, key=None)

    assert "info: 1 of 2 records do not pass left.filter" in texts(filtered, read(1))
    assert "warning: 1 of 1 records do not pass left.filter" in texts(filtered)
    assert "warning: 1 of 2 keys are null: they match nothing" in texts(read(0, key=None), read(1))


def test_samples_without_a_common_key_show_keys_of_both() -> None:
    left, other = measured(SIDE, [read(1), read(2)]), measured(SIDE, [read(3)])
    both: Finding | None = overlap(left, left, "keys")

    assert both is not None
    assert ("info", "2 of 2 keys of the left sample are in the right one (2 keys)") == (
        both.level,
        both.text,
    )
    none = overlap(left, other, "keys")
    assert none is not None
    assert "warning" == none.level
    assert "left has 1, 2; right has 3" in none.text
    assert overlap(left, measured(SIDE, [bad(0, "tombstone")]), "keys") is None
