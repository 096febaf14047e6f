"""What a join will need at the rates its spec expects: rows of state, bytes, memory, cores.

Pure: from the plan alone. The figures of the model are fitted to measured runs:
bench/model.toml notes them, `python -m bench.model` fits the model anew and says how well it fits.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

from job.join_spec.expressions import SIDES, Side, column_name
from job.plan import tuning
from job.plan.plan import JoinPlan, SidePlan

_DAY_SECONDS = 86_400
STATE_MEMORY_BYTES = tuning.STATE_MEMORY_MB * 2**20

# UnsafeRow, Spark's form of a row: a bit for each field, 8 bytes a field, and behind them what does
# not fit into 8 bytes, filled up.
_WORD_BYTES = 8
_FIELDS_A_WORD = 64
_LONG_DECIMAL_BYTES, _LONG_DECIMAL_DIGITS = 16, 18
# The JVM's own, Kafka's buffers, and the Python processes, beside heap and RocksDB: not fitted, a
# margin.
_REST_BYTES = 2**30
# Snapshots of several versions and the changes between them, as a multiple of the newest one: not
# fitted, deploy/k8s/volume.yaml reckons with it as well.
STATE_COPIES = 2

# A type says nothing of these: so long they are assumed to be on average.
TEXT_BYTES = 16
NESTED_BYTES = 64


@dataclass(frozen=True)
class Model:
    """The middle of what was measured. What was measured lies within the spread, either way."""

    measured_on: str
    rows_per_cpu_second: float
    """Input rows of both sides, while there is a backlog."""
    cpu_spread: float
    busy_cores: float
    """Used at 1,000 rows/s a side already: batch follows batch, however small."""
    state_per_byte: float
    """On disk, for each byte of a row held (`row_bytes`): what compression leaves."""
    changes_per_byte: float
    """Written to the checkpoint for each byte of a row that comes and, its time over, leaves."""
    bytes_spread: float
    memory_bytes: float
    """Resident in the whole process tree, with the heap of the settings and hardly any state."""
    memory_spread: float


MODEL = Model(
    measured_on="2 cores of an AMD EPYC with a heap of 2 GiB",
    rows_per_cpu_second=13_500,
    cpu_spread=2.2,
    busy_cores=1.2,
    state_per_byte=0.88,
    changes_per_byte=0.87,
    bytes_spread=1.5,
    memory_bytes=1_630 * 2**20,
    memory_spread=1.2,
)


@dataclass(frozen=True)
class AvailableResources:
    """What a job has."""

    cores: int
    """That the join can use: those of Spark, at most one for each partition of the state."""
    heap_bytes: int | None
    """None: it runs on machines that are not known here."""
    disk_free_bytes: int | None
    """Where the checkpoint is on a disk of this machine."""

    @property
    def memory_limit_bytes(self) -> int | None:
        """What the process tree may grow to, heap and RocksDB full."""
        if self.heap_bytes is None:
            return None
        return self.heap_bytes + STATE_MEMORY_BYTES + _REST_BYTES


@dataclass(frozen=True)
class SideLoad:
    rate: float
    held_for: timedelta | None
    """The longest that a row stays; None: it never leaves."""
    row_state_bytes: float
    """On disk, for each row held."""
    row_change_bytes: float

    @property
    def rows(self) -> float | None:
        """The most that are held; None: ever more."""
        return None if self.held_for is None else self.rate * self.held_for.total_seconds()

    @property
    def state_bytes(self) -> float | None:
        return None if self.rows is None else self.rows * self.row_state_bytes

    @property
    def rows_a_day(self) -> float:
        """By which it grows if they never leave."""
        return self.rate * _DAY_SECONDS

    @property
    def change_bytes_per_second(self) -> float:
        return self.rate * self.row_change_bytes


@dataclass(frozen=True)
class Load:
    left: SideLoad
    right: SideLoad
    cores: float
    """Kept busy by the rows."""
    memory_bytes: float

    @property
    def rate(self) -> float:
        return self.left.rate + self.right.rate

    def side(self, side: Side) -> SideLoad:
        return self.left if side == "left" else self.right

    @property
    def rows(self) -> float | None:
        return _sum(self.side(side).rows for side in SIDES)

    @property
    def state_bytes(self) -> float | None:
        return _sum(self.side(side).state_bytes for side in SIDES)

    @property
    def growth_bytes_a_day(self) -> float:
        """Of the sides whose rows never leave."""
        growing = (side for side in (self.left, self.right) if side.held_for is None)
        return sum(side.rows_a_day * side.row_state_bytes for side in growing)

    @property
    def change_bytes_per_second(self) -> float:
        return sum(self.side(side).change_bytes_per_second for side in SIDES)


def expected_load(plan: JoinPlan, model: Model = MODEL) -> Load | None:
    """None where a side does not say its rate."""
    left, right = (_side_load(plan, plan.side(side), model) for side in SIDES)
    if left is None or right is None:
        return None
    held = _sum(side.state_bytes for side in (left, right))
    return Load(
        left=left,
        right=right,
        cores=(left.rate + right.rate) / model.rows_per_cpu_second,
        memory_bytes=model.memory_bytes + min(STATE_MEMORY_BYTES, held or STATE_MEMORY_BYTES),
    )


def row_bytes(plan: JoinPlan, side: SidePlan, text_bytes: int = TEXT_BYTES) -> int:
    """Of a row of that side in state: itself, and its key and event time in the store's two tables
    (state format 4)."""
    types = {column.name: column.type for column in side.kept_columns}
    window = ["TIMESTAMP"] if plan.window is not None else []
    key = [_type_of(part.sql, side, types) for part in side.key]
    value = [*types.values(), "BIGINT", *window]  # its position in Kafka
    entry = _unsafe_bytes([*key, *window], text_bytes) + _WORD_BYTES
    return _unsafe_bytes(value, text_bytes) + 2 * entry


def _side_load(plan: JoinPlan, side: SidePlan, model: Model) -> SideLoad | None:
    if side.expected_rate is None:
        return None
    width = row_bytes(plan, side)
    return SideLoad(
        rate=side.expected_rate,
        held_for=_held_for(plan, side),
        row_state_bytes=width * model.state_per_byte,
        row_change_bytes=width * model.changes_per_byte,
    )


def _held_for(plan: JoinPlan, side: SidePlan) -> timedelta | None:
    """While both topics are read as they are written, the watermark trails the clock by the longer
    of the two delays. A tumbling window's rows leave together, at its end."""
    if side.retention is None:
        return None
    longest = max(plan.left.watermark_delay, plan.right.watermark_delay)
    return max(timedelta(0), side.retention + longest)


def _type_of(sql: str, side: SidePlan, types: Mapping[str, str]) -> str:
    """Of a part of the key; a computed one is taken for text."""
    for name, type_ in types.items():
        if sql == f"`{column_name(side.side, name)}`":
            return type_
    return "STRING"


def _unsafe_bytes(types: Sequence[str], text_bytes: int) -> int:
    nulls = -(-len(types) // _FIELDS_A_WORD) * _WORD_BYTES
    return nulls + sum(_WORD_BYTES + _beyond(type_, text_bytes) for type_ in types)


def _beyond(type_: str, text_bytes: int) -> int:
    """What a value takes that does not fit into its word."""
    name, _, arguments = type_.partition("(")
    if name == "DECIMAL":
        digits = int(arguments.rstrip(")").split(",")[0]) if arguments else 10
        return _LONG_DECIMAL_BYTES if digits > _LONG_DECIMAL_DIGITS else 0
    if name in {"STRING", "BINARY"}:
        return text_bytes
    return NESTED_BYTES if "<" in name else 0


def _sum(values: Iterable[float | None]) -> float | None:
    """None where one is None."""
    known = list(values)
    return None if None in known else sum(value for value in known if value is not None)
