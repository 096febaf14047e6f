"""Answers of a small job to each call of the protocol."""

from pydantic import BaseModel

from job.protocol.results import (
    ChangePlanResult,
    FailuresResult,
    FieldProblem,
    FrozenChange,
    KeyExplanation,
    KeyRows,
    PlanResult,
    ProgressResult,
    SpecFileResult,
    StateRow,
    UndoResult,
    ValidationResult,
)
from job.spec.sides import Side
from tests.unit.service.builders import NO_BROKER, NOW, batch, state_count

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


def key_rows(side: Side, *rows: StateRow, more: bool = False) -> KeyRows:
    return KeyRows(
        side=side, key=["7"], batch_id=7, rows=list(rows), more=more, duration_seconds=0.25
    )


def key_rows_json(side: str, *rows: dict[str, object], more: bool = False) -> dict[str, object]:
    return {
        "side": side, "key": ["7"], "batch_id": 7, "rows": list(rows), "more": more,
        "duration_seconds": 0.25,
    }  # fmt: skip


def all_answers() -> dict[str, BaseModel]:
    return {
        "plan": PlanResult(
            text="Join ad_attribution", facts={"name": "ad_attribution"}, spec={"name": "x"}
        ),
        "progress": ProgressResult(batches=[batch(batch_id=number) for number in range(100)]),
        "read_spec": SpecFileResult(message="join.yaml contains the running spec"),
        "failures": FailuresResult(failures=[NO_BROKER]),
        "state": key_rows("left", ROW),
        "state_count": state_count(),
        "explain": KeyExplanation(
            sentences=["The query is PAUSED."],
            left=key_rows("left", ROW),
            right=key_rows("right"),
        ),
        "validate": ValidationResult(
            problems=[FieldProblem(field="left.key", message="is required")],
            plan=None,
            checkpoint_changes=[FrozenChange(field="join type", frozen="inner", wanted="x")],
        ),
        "change_plan": ChangePlanResult(text="What changes", facts={"records": 12}),
        "check_undo": UndoResult(checkpoint="/old"),
    }
