"""The sentences of `streamjoin simulate --explain`: facts from the batches of a simulation."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from job.event_time.history import Bounds
from job.explain.causes import causes
from job.explain.evaluation import KeyEvaluation, place_of
from job.explain.facts import Facts, Letter, Result, RowId
from job.explain.sentences import sentence, unreadable
from job.plan.plan import JoinPlan
from job.plan.record_checks import EXPRESSION_FAILED
from job.plan.result_id import Place
from job.semantics.cli import Simulation, SimulationError, simulated, simulation_errors
from job.semantics.input_records import InputRecord
from job.semantics.simulate import DEFAULT_BATCH_SIZE, SimulatedBatch
from job.spec.sides import SIDES, Side
from job.sql.rows import SqlRows


def explained_simulation(
    plan: JoinPlan,
    rows: SqlRows,
    left: Path,
    right: Path,
    key: str,
    *,
    batch_size: int = DEFAULT_BATCH_SIZE,
    trigger: str | None = None,
) -> list[str]:
    """Output of `simulate --explain`. `key`: its parts as text, joined by commas."""
    simulation = simulated(plan, rows, left, right, batch_size=batch_size, trigger=trigger)
    with simulation_errors():
        return explained(simulation, rows, key)


def explained(simulation: Simulation, rows: SqlRows, key: str) -> list[str]:
    """A sentence for each record with the key."""
    plan = simulation.plan
    count = len(plan.left.key)
    parts = key.split(",") if count > 1 else [key]
    if len(parts) != count:
        raise SimulationError(f"--explain: the key has {count} parts: write them joined by commas")
    evaluation = KeyEvaluation(plan, rows, parts)
    of_key = {side: evaluation.select(side, simulation.records[side]) for side in SIDES}
    others = [line for side in SIDES for line in unreadable(side, evaluation.unreadable[side])]
    if not any(of_key.values()):
        return [f"no record has the key {key}", *others]
    evaluated = evaluation.evaluated(of_key)
    batches = simulation.batches
    facts = Facts(
        plan=plan,
        records=evaluated.records,
        pairs=evaluated.pairs,
        results=tuple(_results(plan, batches)),
        result_letters=dict(_failed_results(plan, batches)),
        # A row that has not expired and has no result is in state.
        stored_is_known=dict.fromkeys(SIDES, False),
        watermarks=dict(_watermarks(plan, batches)),
        watermark_ms=batches[-1].watermarks.eviction if batches else None,
    )
    return [*(sentence(facts, record, cause) for record, cause in causes(facts)), *others]


def _results(plan: JoinPlan, batches: Sequence[SimulatedBatch]) -> Iterator[Result]:
    for batch in batches:
        for record in batch.output:
            yield Result(
                _places(plan, record.left, record.right), f"in batch {batch.batch_id}", None
            )


def _failed_results(
    plan: JoinPlan, batches: Sequence[SimulatedBatch]
) -> Iterator[tuple[frozenset[RowId], Letter]]:
    for batch in batches:
        for failed in batch.failed_results:
            places = _places(plan, failed.left, failed.right)
            message = f"{failed.field} cannot be evaluated"
            yield frozenset(places.items()), Letter(EXPRESSION_FAILED, message, None)


def _watermarks(
    plan: JoinPlan, batches: Sequence[SimulatedBatch]
) -> Iterator[tuple[RowId, Bounds]]:
    """The watermark that decided whether a row of the batch was late."""
    for batch in batches:
        late_ms = batch.watermarks.late
        for side, record, _ in batch.keys:
            yield (side, place_of(plan.side(side), record)), Bounds(late_ms, late_ms)


def _places(
    plan: JoinPlan, left: InputRecord | None, right: InputRecord | None
) -> dict[Side, Place]:
    return {
        side: place_of(plan.side(side), record)
        for side, record in zip(SIDES, (left, right), strict=True)
        if record is not None
    }
