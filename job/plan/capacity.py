"""Estimate of the resources of a join at the expected rates: state rows, bytes, memory, cores.

Pure: computed from the plan only. The model is fitted to the measured runs in bench/model.toml;
`python -m bench.model` fits the model again and prints its errors.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta

from job.plan import tuning
from job.plan.deduplication import id_kept_after
from job.plan.plan import JoinPlan
from job.plan.side_plan import Deduplication, SidePlan
from job.spec.engine import Engine
from job.spec.join_conditions import JoinOperator
from job.spec.sides import SIDES, Side
from job.sql.types import BIGINT, BINARY, STRING, TIMESTAMP, SqlType

_DAY_SECONDS = 86_400
STATE_MEMORY_BYTES = tuning.STATE_MEMORY_MB * 2**20

# Spark's UnsafeRow: a null bit per field, 8 bytes per field, then the parts that do not fit into 8
# bytes, padded.
_WORD_BYTES = 8
_FIELDS_A_WORD = 64
_LONG_DECIMAL_BYTES, _LONG_DECIMAL_DIGITS = 16, 18
# Memory besides heap and RocksDB. A margin, not fitted: 1 GiB for JVM, Kafka's buffers and Python
# processes, and 0.5 GiB for the processes that read the specs of clients (change/spec_process.py).
_REST_BYTES = 3 * 2**29
# Size of all snapshots and the changes between them, as a multiple of the newest snapshot. Not
# fitted; deploy/k8s/volume.yaml uses the same factor.
STATE_COPIES = 2

# Measured in docs/benchmarks/results.md, not fitted. In an interval a row costs more than in a
# backlog, to which the model is fitted.
REAL_TIME_RATE = 1_000
"""Records per second and side."""
REAL_TIME_CORES = 0.33
"""Cores used by a job of the real-time engine at this rate."""
OPERATOR_SHARE = 0.5
"""CPU time per row in a backlog of the operator streamjoin, as a share of that of Spark's."""

# Assumed average sizes of types without a fixed size.
TEXT_BYTES = 16
NESTED_BYTES = 64


@dataclass(frozen=True)
class Model:
    """Central values of the measurements. Every measurement is within a factor of the spread."""

    measured_on: str
    rows_per_cpu_second: float
    """Input rows of both sides, during a backlog."""
    cpu_spread: float
    busy_cores: float
    """Cores used at only 1,000 rows/s per side: batches follow each other without a pause."""
    state_per_byte: float
    """Compressed bytes on disk per byte of a state row (`row_bytes`)."""
    changes_per_byte: float
    """Bytes written to the checkpoint per byte of a row, for its insertion and its eviction."""
    bytes_spread: float
    memory_bytes: float
    """Resident in the whole process tree, with the heap of the settings and little state."""
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
    """Resources that a job can use."""

    cores: int
    """Cores of Spark that the join can use: at most one per state partition."""
    heap_bytes: int | None
    """None: unknown, the job runs on a cluster."""
    disk_free_bytes: int | None
    """Free space of the checkpoint's disk. None: the checkpoint is not on a local disk."""

    @property
    def memory_limit_bytes(self) -> int | None:
        """Maximum of the process tree, with heap and RocksDB full. None: unknown."""
        if self.heap_bytes is None:
            return None
        return self.heap_bytes + STATE_MEMORY_BYTES + _REST_BYTES


@dataclass(frozen=True)
class IdLoad:
    """Ids that `deduplicate` stores."""

    count: float
    """Maximum number in state."""
    state_bytes: float
    """Bytes on disk of this many."""
    change_bytes: float
    """Bytes written to the checkpoint per input row."""


@dataclass(frozen=True)
class SideLoad:
    rate: float
    stored_for: timedelta | None
    """Longest time that a row is in state. None: rows are never evicted."""
    row_state_bytes: float
    """Bytes on disk per state row."""
    row_change_bytes: float
    """Bytes written to the checkpoint per input row."""
    ids: IdLoad | None
    """None: the side is not deduplicated."""

    rows: float | None
    """Maximum number of state rows. None: it grows without bound."""
    is_table: bool

    @property
    def state_bytes(self) -> float | None:
        """With the ids. None: it grows without bound."""
        of_ids = self.ids.state_bytes if self.ids else 0
        return None if self.rows is None else self.rows * self.row_state_bytes + of_ids

    @property
    def rows_a_day(self) -> float:
        """Input rows per day: the growth of the state if rows are never evicted."""
        return self.rate * _DAY_SECONDS

    @property
    def change_bytes_per_second(self) -> float:
        of_id = self.ids.change_bytes if self.ids else 0
        return self.rate * (self.row_change_bytes + of_id)


@dataclass(frozen=True)
class Load:
    left: SideLoad
    right: SideLoad
    cores: float
    """Cores that are busy with the rows."""
    memory_bytes: float
    engine: Engine
    operator: JoinOperator

    @property
    def rate(self) -> float:
        return self.left.rate + self.right.rate

    def side(self, side: Side) -> SideLoad:
        return self.left if side == "left" else self.right

    @property
    def rows(self) -> float | None:
        return _sum(self.side(side).rows for side in SIDES)

    @property
    def ids(self) -> float:
        return sum(side.ids.count for side in (self.left, self.right) if side.ids is not None)

    @property
    def state_bytes(self) -> float | None:
        return _sum(self.side(side).state_bytes for side in SIDES)

    @property
    def growth_bytes_a_day(self) -> float:
        """Growth of the sides whose rows are never evicted."""
        growing = (side for side in (self.left, self.right) if side.rows is None)
        return sum(side.rows_a_day * side.row_state_bytes for side in growing)

    @property
    def change_bytes_per_second(self) -> float:
        return sum(self.side(side).change_bytes_per_second for side in SIDES)


def expected_load(plan: JoinPlan, model: Model = MODEL) -> Load | None:
    """None: a side has no expected_rate."""
    left, right = (_side_load(plan, plan.side(side), model) for side in SIDES)
    if left is None or right is None:
        return None
    state_bytes = _sum(side.state_bytes for side in (left, right))
    return Load(
        left=left,
        right=right,
        cores=(left.rate + right.rate) / model.rows_per_cpu_second * _operator_share(plan),
        memory_bytes=model.memory_bytes
        + min(STATE_MEMORY_BYTES, state_bytes or STATE_MEMORY_BYTES),
        engine=plan.engine,
        operator=plan.operator,
    )


def _operator_share(plan: JoinPlan) -> float:
    return OPERATOR_SHARE if plan.operator is JoinOperator.STREAMJOIN else 1


def row_bytes(plan: JoinPlan, side: SidePlan, text_bytes: int = TEXT_BYTES) -> int:
    """Uncompressed bytes of a state row: the row itself, and its key and event time in two tables
    (state format 4)."""
    window = [TIMESTAMP] if plan.window is not None else []
    key = [part.type for part in side.key]
    value = [
        *(column.type for column in side.kept_columns),
        BIGINT,
        *window,
    ]  # BIGINT: the position in Kafka
    entry = unsafe_bytes([*key, *window], text_bytes) + _WORD_BYTES
    return unsafe_bytes(value, text_bytes) + 2 * entry


def expected_ids(plan: JoinPlan, side: SidePlan, model: Model = MODEL) -> IdLoad | None:
    """None: the side has no expected_rate or no `deduplicate`."""
    if side.expected_rate is None or side.deduplication is None:
        return None
    stored_for = id_kept_after(plan, side.deduplication) + watermark_lag(plan)
    if plan.window is not None and side.retention is not None:
        stored_for += side.retention
    count = side.expected_rate * stored_for.total_seconds()
    width = id_bytes(side.deduplication)
    return IdLoad(count, count * width * model.state_per_byte, width * model.changes_per_byte)


def id_bytes(deduplication: Deduplication, text_bytes: int = TEXT_BYTES) -> int:
    """Uncompressed bytes of a stored id, without the key of the join: the slot and its parts, then
    times, position and flag of the row."""
    types = [BIGINT, *(part.type for part in deduplication.by)]
    return unsafe_bytes(types, text_bytes) + unsafe_bytes([BIGINT] * 5, text_bytes)


def _side_load(plan: JoinPlan, side: SidePlan, model: Model) -> SideLoad | None:
    if side.expected_rate is None:
        return None
    width = row_bytes(plan, side)
    time, rows = stored_for(plan, side), None
    if side.table is None:
        if plan.table_side is not None and time is None:
            time, width = timedelta(), 0  # not stored
        rows = None if time is None else side.expected_rate * time.total_seconds()
    elif (rows := table_rows(plan, side)) is None:
        return None
    return SideLoad(
        rate=side.expected_rate,
        rows=rows,
        is_table=side.table is not None,
        stored_for=time,
        row_state_bytes=width * model.state_per_byte,
        row_change_bytes=width * model.changes_per_byte,
        ids=expected_ids(plan, side, model),
    )


def table_rows(plan: JoinPlan, table: SidePlan) -> float | None:
    """Maximum number of rows of a table. None: its number of keys is unknown."""
    assert table.table is not None, "the side is a table"
    rows, rate = table.table.expected_keys, table.expected_rate
    if rows is None or rate is None or not table.table.is_as_of:
        return rows
    # With the versions after the watermark of the stream.
    return rows + rate * plan.side(plan.streams[0]).watermark_delay.total_seconds()


def stored_for(plan: JoinPlan, side: SidePlan) -> timedelta | None:
    """Time for which a row stays in state. None: it stays indefinitely.

    All rows of a tumbling window are evicted together, at its end.
    """
    if side.retention is None:
        return None
    return max(timedelta(0), side.retention + watermark_lag(plan))


def watermark_lag(plan: JoinPlan) -> timedelta:
    """By how much the watermark trails the clock without a backlog: the longer delay."""
    return max(plan.side(side).watermark_delay for side in plan.streams)


def unsafe_bytes(types: Sequence[SqlType], text_bytes: int = TEXT_BYTES) -> int:
    """Bytes of a row with columns of these types."""
    nulls = -(-len(types) // _FIELDS_A_WORD) * _WORD_BYTES
    return nulls + sum(_WORD_BYTES + _beyond(kind, text_bytes) for kind in types)


def _beyond(kind: SqlType, text_bytes: int) -> int:
    """Bytes of a value that do not fit into its word."""
    if kind.is_decimal:
        return _LONG_DECIMAL_BYTES if kind.precision > _LONG_DECIMAL_DIGITS else 0
    if kind in {STRING, BINARY}:
        return text_bytes
    return 0 if kind.is_atomic else NESTED_BYTES


def _sum(values: Iterable[float | None]) -> float | None:
    """None if a value is None."""
    known = list(values)
    return None if None in known else sum(value for value in known if value is not None)
