"""The expressions that a checkpoint freezes are compared as Spark's trees."""

from typing import Any

import pytest

from job.errors import FrozenSpecError
from job.plan.fingerprint import (
    changes,
    check_not_frozen,
    fingerprint,
    incompatible_changes,
    with_spelling_of,
)
from tests.sql_worker import SQL
from tests.unit.specs import plan

OF_STREAM: dict[str, Any] = {
    "left__key": ["coalesce(ad_id, 1)"],
    "left__deduplicate": {"by": ["lower(campaign)"], "within": "1 hour"},
    "left__columns": {
        "country": "upper(campaign)",
        "code": "base64(cast(campaign AS BINARY))",
        "parts": "from_json(campaign, 'a INT')",
    },
    "left__event_time": "shown_at + interval 1 hour",
    "join__condition": "right.user <> 'bot'",
    "output__columns": {
        "ad_id": "left.ad_id",
        "country": "left.country",
        "code": "left.code",
        "a": "left.parts.a",
    },
}
OF_TABLE: dict[str, Any] = {
    "right__table": {"version": "latest", "delete": "user = 'gone'"},
    "join__match_window": None,
}
STATE = (
    "ad_id BIGINT, country STRING = {}, code STRING = BASE64(CAST(left_campaign AS BINARY)), "
    "parts STRUCT<a: INT> = from_json(`left_campaign`,'a INT'), event_time TIMESTAMP"
)


@pytest.mark.parametrize(
    ("earlier", "now"),
    [
        ("SUBSTRING(campaign, 1, 2)", "substr(left.campaign,1,2) -- the country"),
        ("COALESCE(ad_id, 1)", "nvl(`AD_ID`, 1)"),
    ],
)
def test_other_spelling_is_no_change_of_a_key(earlier: str, now: str) -> None:
    def fingerprint_of(key: str) -> dict[str, str]:
        return fingerprint(
            plan(
                left__key=[key],
                right__key=["cast(user as string)"] if "camp" in key else ["ad_id + 0"],
            )
        )

    assert [] == changes(fingerprint_of(earlier), fingerprint_of(now))
    other = now.replace("1", "3")
    assert ["left.key"] == [
        c.field for c in changes(fingerprint_of(earlier), fingerprint_of(other))
    ]


@pytest.mark.parametrize(
    ("field", "recorded", "other"),
    [
        ("join.condition", "`right_user` <> 'bot'", "`right_user` <> 'robot'"),
        ("left.key", "COALESCE(`left_ad_id`, 1)", "COALESCE(`left_ad_id`, 2)"),
        ("left.deduplicate", "LOWER(`left_campaign`) within 1 hour", "`left_cost` within 1 hour"),
        ("left.deduplicate", "LOWER(`left_campaign`) within 1 hour", "no SQL within 1 hour"),
        (
            "left.deduplicate",
            "LOWER(`left_campaign`) within 1 hour",
            "LOWER(`left_campaign`) within 2 hours",
        ),
        ("left.event_time", "`left_shown_at`+INTERVAL 1 hour", "`left_shown_at`+INTERVAL 2 hour"),
        ("left.state_columns", STATE.format("UPPER(left_campaign)"), STATE.format("left_campaign")),
        (
            "left.state_columns",
            STATE.format("UCASE(left_campaign)"),
            STATE.format("UCASE(left_campaign)").replace("ad_id BIGINT", "ad_id INT"),
        ),
        ("left.state_columns", STATE.format("UCASE(left_campaign)"), "ad_id BIGINT"),
        (
            "right.table",
            "latest, delete `right_user`='gone'",
            "latest, delete `right_user`='went'",
        ),
        ("right.table", "latest, delete `right_user`='gone'", "latest"),
        (
            "right.table",
            "latest, delete `right_user`='gone'",
            "as_of, delete `right_user`='gone'",
        ),
    ],
)
def test_text_of_another_version_for_the_same_expression_is_no_change(
    field: str, recorded: str, other: str
) -> None:
    made = plan(**(OF_TABLE if field == "right.table" else OF_STREAM))
    frozen = fingerprint(made)

    assert recorded != frozen[field]
    assert [] == incompatible_changes(
        made, with_spelling_of(made, {**frozen, field: recorded}, SQL)
    )
    changed = with_spelling_of(made, {**frozen, field: other}, SQL)
    assert [field] == [change.field for change in incompatible_changes(made, changed)]


@pytest.mark.parametrize(
    ("changed", "field"),
    [
        ({"format": "csv"}, "left.format"),
        ({"format": "csv", "csv": {"quote": "'"}}, "left.csv"),
        ({"format": "json_schema"}, "left.format"),
        ({"envelope": "debezium", "operations": ["create"]}, "left.envelope"),
        ({"key_format": "json", "key_schema": "STRING"}, "left.key_format"),
        ({"time_zone": "Asia/Shanghai"}, "left.time_zone"),
    ],
)
def test_change_of_how_bytes_become_values_is_refused(changed: dict[str, Any], field: str) -> None:
    key = {"left__key": ["record_key"], "right__key": ["user"]}
    new = plan(**key, **{f"left__{name}": value for name, value in changed.items()})

    assert field in {each.field for each in incompatible_changes(new, fingerprint(plan(**key)))}
    assert [] == incompatible_changes(new, fingerprint(new))


def test_change_of_the_characters_of_csv_is_refused() -> None:
    old, new = (plan(left__format="csv", left__csv={"null_value": text}) for text in ("", "-"))

    assert ["left.csv"] == [each.field for each in incompatible_changes(new, fingerprint(old))]


def test_state_of_another_version_is_refused_by_name_with_the_way_on() -> None:
    made = plan(engine="real_time")
    left_out = {"state_format", "join.operator"}
    recorded = {name: text for name, text in fingerprint(made).items() if name not in left_out}

    differences = incompatible_changes(made, recorded)

    assert [("state_format", "none", "slots of 15 minutes 15 seconds")] == [
        (each.field, each.frozen, each.wanted) for each in differences
    ]
    with pytest.raises(
        FrozenSpecError, match=r"the state of another version .* `streamjoin change"
    ):
        check_not_frozen("file:/c", differences)
    assert "state_format" not in fingerprint(plan(join__operator="spark"))


def test_remedy_names_a_change_only_where_a_change_is_possible() -> None:
    frozen = fingerprint(plan())
    deduplicated = plan(left__deduplicate={"by": ["ad_id"], "within": "1 hour"})
    for changed, is_possible in (
        (plan(left__watermark_delay="1 minute"), True),
        (plan(left__topic="shown"), False),
        (deduplicated, False),
    ):
        with pytest.raises(FrozenSpecError, match="Restore the old values") as refused:
            check_not_frozen("file:/c", incompatible_changes(changed, frozen))
        assert is_possible is ("streamjoin change" in str(refused.value))
