"""`deduplicate`: checks of the spec, the ids as SQL, the text of the plan, the checkpoint."""

import pytest

from job.errors import SpecError
from job.plan.deduplication import id_columns
from job.plan.explain import explained
from job.plan.fingerprint import fingerprint, incompatible_changes
from job.plan.plan import JoinPlan
from tests.unit.specs import plan

SCHEMA = (
    "ad_id BIGINT, shown_at TIMESTAMP, campaign STRING, cost DOUBLE, e STRING, q MAP<STRING, INT>"
)


def deduplicated(*by: str, within: str = "10 minutes", **others: object) -> JoinPlan:
    changes = {"left__schema": SCHEMA, "left__deduplicate": {"by": list(by), "within": within}}
    return plan(**changes, **others)


def test_row_with_a_null_has_no_id() -> None:
    has_all = "(`left_e`) IS NOT NULL AND (`left_ad_id`) IS NOT NULL"
    struct = "struct((`left_e`) AS id_0, (`left_ad_id`) AS id_1)"
    assert {"__left_id": f"CASE WHEN {has_all} THEN {struct} END"} == id_columns(
        deduplicated("e", "ad_id").left
    )
    assert {} == id_columns(plan().left)


def test_id_can_be_a_header() -> None:
    assert deduplicated("element_at(record_headers, 'id')").left.reads_headers


@pytest.mark.parametrize(
    ("by", "message"),
    [
        ("nothing", r"left\.deduplicate\.by\[0\]"),
        ("cost", "is DOUBLE"),
        ("q", "is MAP"),
        ("cast(e AS BIGINT)", "can fail on a record"),
    ],
)
def test_id_that_cannot_be_compared_or_computed_is_refused(by: str, message: str) -> None:
    with pytest.raises(SpecError, match=message):
        deduplicated(by)


@pytest.mark.parametrize("within", ["0 seconds", "-1 minute"])
def test_length_must_be_positive(within: str) -> None:
    with pytest.raises(SpecError, match=r"left\.deduplicate\.within"):
        deduplicated("e", within=within)


def test_real_time_engine_refuses_deduplication() -> None:
    with pytest.raises(SpecError, match=r"left\.deduplicate.*not supported with engine real_time"):
        deduplicated("e", engine="real_time")


def test_checkpoint_freezes_deduplication() -> None:
    frozen = fingerprint(deduplicated("e"))
    assert "`left_e` within 10 minutes" == frozen["left.deduplicate"]
    for other in (deduplicated("ad_id"), deduplicated("e", within="1 minute"), plan()):
        changed = [change.field for change in incompatible_changes(other, frozen)]
        assert "left.deduplicate" in changed
    added = incompatible_changes(deduplicated("e"), fingerprint(plan(left__schema=SCHEMA)))
    assert ("none", "`left_e` within 10 minutes") in [(c.frozen, c.wanted) for c in added]


def test_plan_bounds_the_stored_ids() -> None:
    text = explained(deduplicated("e", left__expected_rate=100.0))
    assert "topic impressions, without duplicates by e within 10 minutes" in text
    assert "e: kept until the watermark is 10 minutes after" in text
    # 100 rows/s for 10 minutes and the longer watermark_delay of 20 s
    assert "At 100 rows/s up to 62,000 ids, 4.6 MiB on disk" in text
    assert "ids of right" not in text


def test_ids_of_windows_are_kept_until_their_end() -> None:
    text = explained(
        deduplicated("e", left__expected_rate=100.0, join={"type": "inner", "window": "1 minute"})
    )
    assert "kept until the watermark has reached the end of the window" in text
    assert "up to 8,000 ids" in text
