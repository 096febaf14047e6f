"""The expected load in the text and the JSON of `streamjoin plan`."""

from collections.abc import Iterator
from datetime import timedelta
from textwrap import wrap

from job.plan import tuning
from job.plan.capacity import (
    MODEL,
    NESTED_BYTES,
    OPERATOR_SHARE,
    REAL_TIME_CORES,
    REAL_TIME_RATE,
    STATE_COPIES,
    STATE_MEMORY_BYTES,
    TEXT_BYTES,
    AvailableResources,
    Load,
    SideLoad,
)
from job.spec.durations import duration_text
from job.spec.engine import Engine
from job.spec.join_conditions import JoinOperator
from job.spec.sides import SIDES

_LINE = 80
_UNITS = ("bytes", "KiB", "MiB", "GiB", "TiB", "PiB")
_A_UNIT = 1024

_MEASURED_OPERATOR = JoinOperator.SPARK
_ACCURACY = (
    f"a model fitted to the benchmark of the operator {_MEASURED_OPERATOR.value} on "
    f"{MODEL.measured_on}: cores are within a factor of {MODEL.cpu_spread:g} either way, memory "
    f"within {MODEL.memory_spread:g}, bytes within {MODEL.bytes_spread:g}"
)
_OTHER_OPERATOR = (
    f"; the operator {JoinOperator.STREAMJOIN.value} is counted with {OPERATOR_SHARE:g} times its "
    "cores"
)
_ASSUMED = (
    f"{TEXT_BYTES} bytes per STRING or BINARY, {NESTED_BYTES} per ARRAY, MAP or STRUCT; a row "
    "matches about once; filters drop nothing; there is no backlog"
)
_UNMEASURED_IDS = "; cores do not include deduplicate"


def load_lines(load: Load, resources: AvailableResources | None) -> Iterator[tuple[str, str]]:
    """(name, text) of each line, wrapped at 80 characters."""
    for name, text in _load(load, resources):
        for number, line in enumerate(wrap(text, _LINE)):
            yield name if number == 0 else "", line


def _load(load: Load, resources: AvailableResources | None) -> Iterator[tuple[str, str]]:
    for side in SIDES:
        yield side, _side(load.side(side))
    yield "state", _state(load)
    yield "checkpoint", f"{size(load.change_bytes_per_second)}/s of changes are written to it"
    yield "memory", f"{size(_memory(load, resources))} resident{_limit(resources)}"
    yield "cores", f"{_significant(load.cores)}{_available(resources)} {_busy(load)}"
    for warning in warnings(load, resources):
        yield "WARNING", warning
    yield (
        "accuracy",
        _ACCURACY if load.operator is _MEASURED_OPERATOR else _ACCURACY + _OTHER_OPERATOR,
    )
    yield "assumed", f"{_ASSUMED}{_UNMEASURED_IDS if load.ids else ''}"


def load_as_json(load: Load, resources: AvailableResources | None) -> dict[str, object]:
    return {
        "sides": {side: _side_as_json(load.side(side)) for side in SIDES},
        "state_rows": load.rows,
        "stored_ids": load.ids,
        "state_bytes": load.state_bytes,
        "state_growth_bytes_per_day": load.growth_bytes_a_day,
        "checkpoint_bytes_per_second": load.change_bytes_per_second,
        "memory_bytes": _memory(load, resources),
        "memory_limit_bytes": None if resources is None else resources.memory_limit_bytes,
        "cores_needed": load.cores,
        "cores": None if resources is None else resources.cores,
        "warnings": list(warnings(load, resources)),
        "spread": {
            "cores": MODEL.cpu_spread,
            "memory": MODEL.memory_spread,
            "bytes": MODEL.bytes_spread,
        },
        "measured_on": MODEL.measured_on,
        "measured_operator": _MEASURED_OPERATOR.value,
    }


def warnings(load: Load, resources: AvailableResources | None) -> Iterator[str]:
    """Resources that are too small, or may be."""
    if resources is not None and load.cores * MODEL.cpu_spread > resources.cores:
        surely = load.cores > resources.cores * MODEL.cpu_spread
        yield (
            f"{load.rate:,.9g} rows/s {'are' if surely else 'may be'} too much for "
            f"{resources.cores} cores"
        )
    if load.state_bytes is not None and load.state_bytes > STATE_MEMORY_BYTES:
        yield (
            f"the state is larger than the {tuning.STATE_MEMORY_MB} MB of memory that RocksDB may "
            "use: batches read state from disk"
        )
    free = None if resources is None else resources.disk_free_bytes
    if load.growth_bytes_a_day:
        growth = size(load.growth_bytes_a_day)
        yield f"the state grows by {growth} per day indefinitely{_full(load, free)}"
    elif free is not None and load.state_bytes is not None and _on_disk(load.state_bytes) > free:
        yield (
            f"the checkpoint takes about {size(_on_disk(load.state_bytes))}, and its disk has "
            f"{size(free)} free"
        )


def _busy(load: Load) -> str:
    if load.engine is Engine.MICRO_BATCH:
        return f"are busy with the rows{_small(load)}"
    return (
        "are busy with the rows of a backlog, in micro-batches. In real time a row needs more: "
        f"{REAL_TIME_CORES:g} cores were used at {REAL_TIME_RATE:,} records/s a side"
    )


def _small(load: Load) -> str:
    """At low rates the batches are small, and small batches cost more per row."""
    if load.cores > MODEL.busy_cores:
        return ""
    return (
        f"; if available, about {MODEL.busy_cores:g} are used, because small batches follow each "
        "other without a pause"
    )


def _full(load: Load, free: int | None) -> str:
    if free is None:
        return ""
    days = timedelta(days=int(free / _on_disk(load.growth_bytes_a_day)))
    return f"; the checkpoint's disk ({size(free)} free) is full in {duration_text(days)}"


def _on_disk(state_bytes: float) -> float:
    return STATE_COPIES * state_bytes


def _side(side: SideLoad) -> str:
    rate, ids = f"{side.rate:,.9g} rows/s", _ids(side.ids.count if side.ids else 0)
    if side.is_table and side.rows is not None:
        return f"{rate}, stored by key: {_rows(side.rows)}"
    if side.rows == 0:
        return f"{rate}, not stored"
    if side.stored_for is None or side.rows is None:
        return f"{rate}, never evicted: {_rows(side.rows_a_day)} more per day{ids}"
    return f"{rate}, stored for up to {duration_text(side.stored_for)}: {_rows(side.rows)}{ids}"


def _state(load: Load) -> str:
    if load.rows is None or load.state_bytes is None:
        return f"grows by {size(load.growth_bytes_a_day)} per day"
    return (
        f"{_rows(load.rows)}{_ids(load.ids)}, {size(load.state_bytes)} on disk; with older "
        f"versions the checkpoint takes about {STATE_COPIES} times that"
    )


def _memory(load: Load, resources: AvailableResources | None) -> float:
    """At most the limit of the machine: its heap may be smaller than that of the model."""
    limit = None if resources is None else resources.memory_limit_bytes
    return load.memory_bytes if limit is None else min(load.memory_bytes, limit)


def _limit(resources: AvailableResources | None) -> str:
    limit = None if resources is None else resources.memory_limit_bytes
    return "" if limit is None else f", at most {size(limit)}"


def _available(resources: AvailableResources | None) -> str:
    return "" if resources is None else f" of {resources.cores}"


def _side_as_json(side: SideLoad) -> dict[str, object]:
    return {
        "rows_per_second": side.rate,
        "stored_for_seconds": None if side.stored_for is None else side.stored_for.total_seconds(),
        "rows": side.rows,
        "stored_ids": side.ids.count if side.ids else 0,
        "state_bytes": side.state_bytes,
    }


def _rows(count: float) -> str:
    return f"{rounded(count)} rows"


def _ids(count: float) -> str:
    return f" and {rounded(count)} ids" if count else ""


def rounded(count: float) -> str:
    """Three significant digits."""
    return f"{float(f'{count:.3g}'):,.0f}"


def size(count: float) -> str:
    unit = 0
    while count >= _A_UNIT and unit < len(_UNITS) - 1:
        count, unit = count / _A_UNIT, unit + 1
    return f"{_significant(count)} {_UNITS[unit]}"


def _significant(value: float) -> str:
    """Two significant digits."""
    shown = float(f"{value:.2g}")
    return f"{shown:,.0f}" if shown >= 10 or shown == int(shown) else f"{shown:,.2g}"
