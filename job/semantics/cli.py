"""The commands `simulate` and `test`, from files to lines of text, without their options."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from job.errors import StreamjoinError
from job.plan.plan import JoinPlan
from job.plan.side_plan import SidePlan
from job.semantics.input_records import InputLineError, InputRecord, records_of_jsonl
from job.semantics.simulate import DEFAULT_BATCH_SIZE, SimulatedBatch, simulate
from job.semantics.simulated_topics import with_named_topics
from job.semantics.simulation_plan import NotExactError
from job.semantics.spec_tests import Outcome, SpecTest, run_spec_test
from job.semantics.trace import batch_lines
from job.spec.durations import duration, milliseconds
from job.spec.sides import SIDES, Side
from job.sql.rows import EvaluationError, SqlRows


class SimulationError(StreamjoinError):
    """The join cannot be simulated exactly, or the query would fail on these rows."""

    code = "simulation"


@dataclass(frozen=True)
class Simulation:
    plan: JoinPlan
    """With the topics of the records."""
    records: Mapping[Side, Sequence[InputRecord]]
    batches: Sequence[SimulatedBatch]


def simulation_lines(
    plan: JoinPlan,
    rows: SqlRows,
    left: Path,
    right: Path,
    *,
    batch_size: int = DEFAULT_BATCH_SIZE,
    trigger: str | None = None,
    as_jsonl: bool = False,
) -> Iterator[str]:
    """Output of `simulate`: each batch, or only the output values."""
    simulation = simulated(plan, rows, left, right, batch_size=batch_size, trigger=trigger)
    if as_jsonl:
        return (record.value for batch in simulation.batches for record in batch.output)
    return batch_lines(simulation.plan, simulation.batches)


def simulated(
    plan: JoinPlan,
    rows: SqlRows,
    left: Path,
    right: Path,
    *,
    batch_size: int = DEFAULT_BATCH_SIZE,
    trigger: str | None = None,
) -> Simulation:
    """Runs the records of two files. Raises SimulationError."""
    paths = dict(zip(SIDES, (left, right), strict=True))
    lines = {side: _lines(path) for side, path in paths.items()}
    plan = with_named_topics(plan, lines)
    trigger_ms = None if trigger is None else _trigger_ms(trigger)
    with simulation_errors():
        records = {
            side: _records(paths[side], lines[side], plan.side(side), rows) for side in SIDES
        }
        batches = simulate(
            *(plan, rows, records["left"], records["right"]),
            batch_size=batch_size,
            trigger_ms=trigger_ms,
        )
    return Simulation(plan, records, batches)


def run_spec_tests(plan: JoinPlan, rows: SqlRows, tests: Sequence[SpecTest]) -> list[Outcome]:
    """The outcome of each test. Raises SimulationError."""
    with simulation_errors():
        return [run_spec_test(plan, rows, test) for test in tests]


@contextmanager
def simulation_errors() -> Iterator[None]:
    """Raises SimulationError."""
    try:
        yield
    except NotExactError as error:
        raise SimulationError(f"cannot be simulated: it uses {error}") from error
    except EvaluationError as error:
        raise SimulationError(f"the query would fail on these rows: {error}") from error
    except InputLineError as error:
        raise SimulationError(str(error)) from error


def outcome_lines(outcome: Outcome) -> Iterator[str]:
    yield f"{'passed' if outcome.passed else 'FAILED'}: {outcome.test.name}"
    yield from (f"  {line}" for line in outcome.left_out)
    yield from (f"  missing: {row}" for row in outcome.missing)
    yield from (f"  unexpected: {row}" for row in outcome.unexpected)


def _trigger_ms(text: str) -> int:
    try:
        length = milliseconds(duration(text))
    except ValueError as error:
        raise SimulationError(f"--trigger: {error} (written: {text[:40]})") from error
    if length <= 0:
        raise SimulationError(f"--trigger: must be positive (written: {text[:40]})")
    return length


def _lines(path: Path) -> list[str]:
    # Only a newline ends a line: JSON text may contain other line separators of Unicode.
    return _text(path).split("\n")


def _records(path: Path, lines: list[str], side: SidePlan, rows: SqlRows) -> list[InputRecord]:
    try:
        return records_of_jsonl(lines, rows, side)
    except InputLineError as error:
        raise SimulationError(f"{path}, {error}") from error


def _text(path: Path) -> str:
    try:
        return path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise SimulationError(f"{path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise SimulationError(
            f"{path} is not UTF-8 at byte {error.start + 1}: save it as UTF-8"
        ) from error
