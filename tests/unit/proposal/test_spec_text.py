"""What is proposed is valid, and reads every record of the sample."""

import json
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from job.proposal.columns import Table, table_of
from job.proposal.dialog import draft_of
from job.proposal.observed import Observer
from job.proposal.proposal import Proposal, longer, scalar
from job.proposal.spec_text import spec_text
from job.proposal.times import EventTime, event_times
from job.semantics.simulate import simulate
from job.spec.join_conditions import JoinType
from job.spec.sides import SIDES, Side
from tests.sql_worker import ROWS, SQL
from tests.unit.proposal.samples import T0_MS, records

OBSERVER = Observer({}, SQL, ROWS)


def proposal(tables: dict[Side, Table], join_type: JoinType, **changed: Any) -> Proposal:
    topics: dict[Side, str] = {"left": "1.5", "right": "no"}  # a number and a boolean in YAML
    draft = draft_of(topics, tables, OBSERVER)
    times: dict[Side, EventTime] = {
        side: event_times(tables[side], ROWS, draft.quoted)[0] for side in SIDES
    }
    settings = {"times": times, "keys": [("k", "k")], "output_topic": "-out", **changed}
    return replace(draft, join_type=join_type, **settings)


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5)
    | st.just("2026-01-01T00:00:00Z"),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=6,
)
SAMPLES = st.lists(st.dictionaries(st.text(max_size=4), JSON, max_size=4), min_size=1, max_size=4)


@given(left=SAMPLES, right=SAMPLES, join_type=st.sampled_from(JoinType))
def test_proposed_spec_is_valid_and_reads_every_record(
    left: list[dict[str, Any]], right: list[dict[str, Any]], join_type: JoinType
) -> None:
    sampled = {
        side: records(*(json.dumps({**row, "k": 1}) for row in rows))
        for side, rows in zip(SIDES, (left, right), strict=True)
    }
    tables: dict[Side, Table] = {side: table_of(sampled[side]) for side in SIDES}
    if any("k" not in table.columns for table in tables.values()):
        return  # a name before it differs by case alone
    plan = OBSERVER.plan(proposal(tables, join_type))
    batches = simulate(plan, ROWS, sampled["left"], sampled["right"])
    assert [] == [drop for batch in batches for drop in batch.drops]


def test_comments_state_what_was_found_and_security_is_kept_as_written() -> None:
    rows = records(json.dumps({"k": 1, "at": T0_MS - 2_000, "K": 3}))
    others = records(json.dumps({"k": 1, "at": T0_MS - 1_000}))
    tables: dict[Side, Table] = {"left": table_of(rows), "right": table_of(others)}
    security = "protocol: SASL_SSL\nmechanism: PLAIN\nusername: ann\npassword_file: ${SECRETS}/p\n"
    found = replace(OBSERVER.observed(proposal(tables, JoinType.FULL_OUTER)), security=security)
    text = spec_text(found, SQL)
    assert "    password_file: ${SECRETS}/p\n" in text
    assert '# not in the schema, because no column can have the name: "K"' in text
    assert "In 1 pairs of the samples, right - left is 1.0 s to 1.0 s." in text
    assert "match_window: {before: 0 seconds, after: 10 seconds}" in text
    assert "key: coalesce(left.k, right.k)" in text
    assert "right_k: right.k" in text


@pytest.mark.parametrize("text", ["no", "1.5", "a: b", "a #b", "- a", "", "null", "é", "a\nb", "{"])
def test_scalar_is_read_as_the_same_text(text: str) -> None:
    import yaml

    assert {"x": text} == yaml.safe_load(f"x: {scalar(text)}")


@pytest.mark.parametrize(
    ("seconds", "proposed"),
    [
        (0, timedelta(0)),
        (0.5, timedelta(seconds=1)),
        (5, timedelta(seconds=10)),
        (45, timedelta(minutes=5)),
        (699, timedelta(minutes=30)),
        (7_120, timedelta(hours=3)),
        (86_400 * 100, timedelta(days=150)),
    ],
)
def test_durations_are_round_and_have_a_margin(seconds: float, proposed: timedelta) -> None:
    assert proposed == longer(round(seconds * 1_000_000))
