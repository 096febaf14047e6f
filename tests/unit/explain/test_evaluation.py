"""Records of a key, selected and judged with the expressions of the spec."""

import json
from typing import Any

from job.event_time.filters import EarlierFilters, Filter
from job.explain.evaluation import KeyEvaluation
from job.explain.facts import Bad, Filtered
from job.plan.result_id import Place
from job.semantics.input_records import InputRecord
from tests.sql_worker import ROWS
from tests.unit.specs import plan

SHOWN_AT = 1_709_287_207_000


def record(offset: int, ad_id: int | None) -> InputRecord:
    value = json.dumps({"ad_id": ad_id, "shown_at": SHOWN_AT})
    return InputRecord(value, offset, timestamp_us=SHOWN_AT * 1_000)


def test_records_with_a_null_key_are_selected_by_the_text_null() -> None:
    records = [record(0, None), record(1, 7)]

    for key, offset in (("null", 0), ("7", 1)):
        selected = KeyEvaluation(plan(), ROWS, [key]).select("left", records)
        assert [offset] == [each.offset for each in selected]


def test_records_whose_key_cannot_be_read_are_kept_apart() -> None:
    evaluation = KeyEvaluation(plan(), ROWS, ["7"])
    assert [] == evaluation.select("left", [InputRecord("{", 3, timestamp_us=1)])

    [(place, bad)] = evaluation.unreadable["left"]
    assert (Place("impressions", 0, 3), "malformed_json") == (place, bad.reason)
    assert isinstance(bad, Bad)


def before(watermark_ms: int = 0, **filters: str | None) -> EarlierFilters:
    """The filters until offset 5 of each side: the SQL of each field. Others had no filter."""
    fields = {"left_filter": "left.filter", "output_filter": "output.filter"}
    sql = {fields[name]: text for name, text in filters.items()}
    return EarlierFilters(
        until_ms=SHOWN_AT,
        offsets={"left": {0: 5}, "right": {0: 5}},
        watermark_ms=watermark_ms,
        filters={
            field: None if text is None else Filter(text="the text", sql=text)
            for field, text in sql.items()
        },
    )


def click(offset: int) -> InputRecord:
    value = json.dumps({"ad_id": 7, "clicked_at": SHOWN_AT, "user": "u"})
    return InputRecord(value, offset, timestamp_us=SHOWN_AT * 1_000)


CHANGED = "(the text), which was changed at 2024-03-01T10:00:07.000Z"


def test_record_is_judged_by_the_filter_with_which_it_was_read() -> None:
    records: Any = {"left": [record(4, 7), record(5, 7)], "right": []}

    strict, lax = before(left_filter="`left_ad_id` > 7"), before(left_filter=None)
    dropped = KeyEvaluation(plan(), ROWS, ["7"], earlier=[strict]).evaluated(records)
    assert [Filtered(f"left.filter {CHANGED}"), None] == [each.problem for each in dropped.records]

    spec = plan(left__filter="ad_id > 7")
    passed = KeyEvaluation(spec, ROWS, ["7"], earlier=[lax]).evaluated(records)
    assert [None, Filtered("left.filter (ad_id > 7)")] == [each.problem for each in passed.records]


def test_pair_is_judged_by_the_output_filter_with_which_its_later_row_was_read() -> None:
    records: Any = {"left": [record(4, 7)], "right": [click(4), click(5)]}
    earlier = before(output_filter="`left_ad_id` > 7")

    found = KeyEvaluation(plan(), ROWS, ["7"], earlier=[earlier]).evaluated(records)

    assert [(False, f"output.filter {CHANGED}"), (True, None)] == [
        (pair.passes_filter, pair.earlier_filter) for pair in found.pairs.values()
    ]


def test_unmatched_row_is_judged_by_the_output_filter_with_which_it_expired() -> None:
    records: Any = {"left": [record(4, 7)], "right": []}
    hours_later = SHOWN_AT + 10 * 3_600_000

    for watermark_ms, passes in ((hours_later, False), (SHOWN_AT, True)):
        earlier = before(watermark_ms, output_filter="`left_ad_id` > 7")
        found = KeyEvaluation(plan(), ROWS, ["7"], earlier=[earlier]).evaluated(records)
        assert passes is found.records[0].passes_alone
