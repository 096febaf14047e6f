"""Answers of a small job to each call of the protocol."""

from pydantic import BaseModel

from job.protocol.answers import (
    FailuresAnswer,
    FieldProblem,
    FrozenChange,
    KeyExplanation,
    PlanAnswer,
    ProgressAnswer,
    StateAnswer,
    StateRow,
    ValidationAnswer,
)
from tests.unit.service.builders import NO_BROKER, NOW, batch, census

ROW = StateRow(
    row={"ad_id": 7, "shown_at": "2026-11-20T12:00:00.000Z"},
    event_time=NOW,
    topic="impressions",
    partition=1,
    offset=17,
    matched=False,
    leaves_after=NOW,
)
ROW_JSON = {
    "row": {"ad_id": 7, "shown_at": "2026-11-20T12:00:00.000Z"},
    "event_time": "2026-11-20T12:00:00Z",
    "topic": "impressions",
    "partition": 1,
    "offset": 17,
    "matched": False,
    "leaves_after": "2026-11-20T12:00:00Z",
}


def state_rows(side: str, *rows: StateRow, more: bool = False) -> StateAnswer:
    return StateAnswer(side=side, key=["7"], batch_id=7, rows=list(rows), more=more, seconds=0.25)


def state_rows_json(side: str, *rows: dict[str, object], more: bool = False) -> dict[str, object]:
    return {
        "side": side, "key": ["7"], "batch_id": 7, "rows": list(rows), "more": more,
        "seconds": 0.25,
    }  # fmt: skip


def all_answers() -> dict[str, BaseModel]:
    return {
        "plan": PlanAnswer(
            text="Join ad_attribution", facts={"name": "ad_attribution"}, spec={"name": "x"}
        ),
        "progress": ProgressAnswer(batches=[batch(batch_id=number) for number in range(100)]),
        "failures": FailuresAnswer(failures=[NO_BROKER]),
        "state": state_rows("left", ROW),
        "state_census": census(),
        "why": KeyExplanation(
            sentences=["The query is PAUSED."],
            left=state_rows("left", ROW),
            right=state_rows("right"),
        ),
        "validate": ValidationAnswer(
            problems=[FieldProblem(field="left.key", message="is required")],
            plan=None,
            checkpoint_changes=[FrozenChange(field="join type", frozen="inner", wanted="x")],
        ),
    }
