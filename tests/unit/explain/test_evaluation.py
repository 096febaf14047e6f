"""Records of a key, selected with the expressions of the spec."""

import json

from job.explain.evaluation import KeyEvaluation
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
