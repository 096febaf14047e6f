"""The plan of a change, in words and as JSON. Pure.

A user sees a plan while the old query runs. The plan that is made has the final cut: it is planned
again once the old query has stopped.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from job.change.comparison import Comparison
from job.event_time.filters import EarlierFilters
from job.event_time.interval import Interval
from job.instants import time_text
from job.plan.plan import JoinPlan
from job.protocol.results import ChangePlanResult
from job.replay.replay import Replay
from job.spec.sides import SIDES, Side

# Rate of a local job on one core (docs/benchmarks/results.md). A replay emits no results.
_RECORDS_PER_CORE_SECOND = 18_000
# From the start of the new job to its first batch.
_START_SECONDS = 10


@dataclass(frozen=True)
class ChangePlan:
    new: JoinPlan
    """Plan of the new query, with its number of state partitions."""
    comparison: Comparison
    replay: Replay
    needed_ms: Mapping[Side, int]
    """Kafka timestamp from which records are needed, of the sides that it decides for."""
    late_rows: int | None = None
    """Late rows that the running job has counted since its start. None: no job answers, or the
    change is being made."""
    repeats: Interval | None = None
    """The interrupted interval that the old query repeats before the change."""
    filters: EarlierFilters | None = None
    """The last filters that the old query has read with before the present ones. None: it has read
    all records with these."""


def described(plan: ChangePlan, *, cores: int) -> ChangePlanResult:
    facts = _facts(plan, cores)
    return ChangePlanResult(text="\n".join(_lines(plan, facts)), facts=facts)


def _facts(plan: ChangePlan, cores: int) -> dict[str, Any]:
    replay, repeats = plan.replay, plan.repeats
    return {
        "changes": [
            {"field": change.field, "old": change.frozen, "new": change.wanted}
            for change in (*plan.comparison.changes, *plan.comparison.others)
        ],
        "effects": [*plan.comparison.effects, *_effects_of_filters(plan)],
        "repeated_first": None
        if repeats is None
        else {
            "interval": repeats.batch_id,
            "records_left": repeats.records_left(replay.ends),
        },
        "cut": {
            "batch_id": replay.old_batch_id,
            "watermark": _time(replay.watermark_ms),
            "offsets": _offsets(plan.new, replay.ends),
        },
        "read_again": {
            side: {
                "from": _time(plan.needed_ms.get(side, 0)) if replay.watermark_ms else None,
                "start_offsets": _offsets(plan.new, replay.starts)[side],
                "records": sum(
                    end - replay.starts[side][number] for number, end in replay.ends[side].items()
                ),
            }
            for side in SIDES
        },
        "records": replay.records,
        "possibly_late_records": replay.possibly_late_records,
        "late_rows_of_the_job": plan.late_rows,
        "seconds": round(
            _START_SECONDS + replay.records / (_RECORDS_PER_CORE_SECOND * max(cores, 1))
        ),
    }


def _lines(plan: ChangePlan, facts: Mapping[str, Any]) -> Iterator[str]:
    replay = plan.replay
    yield "What changes"
    if not plan.comparison.changes:
        yield "  no setting that the state depends on"
    for change in (*plan.comparison.changes, *plan.comparison.others):
        yield f"  {change.field}: {change.frozen} -> {change.wanted}"
    yield "\nEffects on results near the cut"
    for effect in facts["effects"]:
        yield f"  {effect}"
    if (repeated := facts["repeated_first"]) is not None:
        yield from _repetition(repeated)
    watermark = facts["cut"]["watermark"] or "none yet"
    yield f"\nThe cut: after batch {replay.old_batch_id}, watermark {watermark}"
    yield "\nRecords that the new query reads again to build its state"
    for side in SIDES:
        again = facts["read_again"][side]
        since = f" since {again['from']}" if again["from"] else ""
        yield f"  {plan.new.side(side).topic}: {again['records']:,} records{since}"
        for place, start in again["start_offsets"].items():
            yield f"    {place}: offset {start} to {facts['cut']['offsets'][side][place]}"
    yield f"  about {facts['seconds']} s, including the start of the job"
    yield "\nWhat is kept back"
    yield "  results and dead letters of records before the cut: the old query has written them"
    yield from _expired(replay)
    yield "\nLate rows"
    yield from _late_rows(facts)
    yield "\nWhat stays"
    if replay.is_shadow:
        yield "  the old query: both queries run until you stop one of them"
        return
    yield f"  the old checkpoint, {replay.old_checkpoint}: `--undo` returns to it"
    yield "  until the new query delivers"


def _effects_of_filters(plan: ChangePlan) -> Iterator[str]:
    if plan.filters is None:
        return
    starts, before = plan.replay.starts, plan.filters.offsets
    records = sum(
        max(0, before[side].get(number, 0) - start)
        for side in SIDES
        for number, start in starts[side].items()
    )
    if records:
        yield (
            f"{records:,} of the records that are read again were read with other filters before "
            f"{time_text(plan.filters.until_ms)}. Now the filters of the new spec "
            "decide about them: a row in state that they drop has no results after the cut."
        )


def _repetition(repeated: Mapping[str, Any]) -> Iterator[str]:
    left = repeated["records_left"]
    yield "\nThe change waits"
    yield (
        f"  until the old query has repeated interval {repeated['interval']}, which was "
        "interrupted after it had"
    )
    records = "" if left is None else f"; {left:,} records are left"
    yield f"  delivered results. The old query must run for this{records}. Then the cut is later"


def _late_rows(facts: Mapping[str, Any]) -> Iterator[str]:
    if not facts["possibly_late_records"]:
        yield "  the new query joins no rows that were late in the old query"
        return
    yield (
        f"  {facts['possibly_late_records']:,} of the records that are read again may have been "
        "late in the old query:"
    )
    yield "  Spark's log does not contain their watermarks, or the event time or window changes."
    yield "  Late records among them can match records after the cut"
    if (counted := facts["late_rows_of_the_job"]) is not None:
        yield f"  the running job has counted {counted:,} late rows since its start"


def _expired(replay: Replay) -> Iterator[str]:
    for rows in replay.expired:
        if rows.ends is not None:
            yield f"  unmatched {rows.side} rows that had expired before an earlier change"
            continue
        yield (
            f"  unmatched {rows.side} rows before the cut that had expired with the old spec, "
            "although the new spec keeps them longer"
        )


def _offsets(
    plan: JoinPlan, offsets: Mapping[Side, Mapping[int, int]]
) -> dict[Side, dict[str, int]]:
    return {
        side: {
            plan.side(side).topics.label(number): offsets[side][number]
            for number in sorted(offsets[side])
        }
        for side in SIDES
    }


def _time(ms: int) -> str | None:
    return time_text(ms) if ms > 0 else None
