"""The expected load: in words, and for programs."""

from collections.abc import Iterator
from datetime import timedelta
from textwrap import wrap

from job.join_spec.durations import duration_text
from job.join_spec.expressions import SIDES
from job.plan import tuning
from job.plan.capacity import (
    MODEL,
    NESTED_BYTES,
    STATE_COPIES,
    STATE_MEMORY_BYTES,
    TEXT_BYTES,
    AvailableResources,
    Load,
    SideLoad,
)

_LINE = 80
_UNITS = ("bytes", "KiB", "MiB", "GiB", "TiB", "PiB")
_A_UNIT = 1024

_HOW_SURE = (
    f"estimated by a model fitted to the benchmark on {MODEL.measured_on}: cores within a factor "
    f"of {MODEL.cpu_spread:g} either way, memory of {MODEL.memory_spread:g}, bytes of "
    f"{MODEL.bytes_spread:g}"
)
_ASSUMED = (
    f"{TEXT_BYTES} bytes a STRING or BINARY, {NESTED_BYTES} an ARRAY, MAP or STRUCT; a row matches "
    "about once; filters drop nothing; both topics are read as they are written"
)


def load_lines(load: Load, means: AvailableResources | None) -> Iterator[tuple[str, str]]:
    """Names and what is to be said of them, in lines of a screen's width."""
    for name, text in _load(load, means):
        for number, line in enumerate(wrap(text, _LINE)):
            yield name if number == 0 else "", line


def _load(load: Load, means: AvailableResources | None) -> Iterator[tuple[str, str]]:
    for side in SIDES:
        yield side, _side(load.side(side))
    yield "state", _state(load)
    yield "checkpoint", f"{_size(load.change_bytes_per_second)}/s of changes written to it"
    yield "memory", f"{_size(_memory(load, means))} resident{_limit(means)}"
    yield "cores", f"{_significant(load.cores)}{_of(means)} kept busy by the rows{_small(load)}"
    for warning in warnings(load, means):
        yield "WARNING", warning
    yield "how sure", _HOW_SURE
    yield "assumed", _ASSUMED


def load_facts(load: Load, means: AvailableResources | None) -> dict[str, object]:
    return {
        "sides": {side: _side_facts(load.side(side)) for side in SIDES},
        "state_rows": load.rows,
        "state_bytes": load.state_bytes,
        "state_growth_bytes_per_day": load.growth_bytes_a_day,
        "checkpoint_bytes_per_second": load.change_bytes_per_second,
        "memory_bytes": _memory(load, means),
        "memory_limit_bytes": None if means is None else means.memory_limit_bytes,
        "cores_needed": load.cores,
        "cores": None if means is None else means.cores,
        "warnings": list(warnings(load, means)),
        "spread": {
            "cores": MODEL.cpu_spread,
            "memory": MODEL.memory_spread,
            "bytes": MODEL.bytes_spread,
        },
        "measured_on": MODEL.measured_on,
    }


def warnings(load: Load, means: AvailableResources | None) -> Iterator[str]:
    """What does not fit, or hardly."""
    if means is not None and load.cores * MODEL.cpu_spread > means.cores:
        surely = load.cores > means.cores * MODEL.cpu_spread
        yield (
            f"{load.rate:,.9g} rows/s {'are' if surely else 'may be'} more than "
            f"{means.cores} cores can take"
        )
    if load.state_bytes is not None and load.state_bytes > STATE_MEMORY_BYTES:
        yield (
            f"the state is larger than the {tuning.STATE_MEMORY_MB} MB of memory that RocksDB may "
            "use: batches wait for the disk"
        )
    free = None if means is None else means.disk_free_bytes
    if load.growth_bytes_a_day:
        growth = _size(load.growth_bytes_a_day)
        yield f"the state grows by {growth} a day, for ever{_full(load, free)}"
    elif free is not None and load.state_bytes is not None and _on_disk(load.state_bytes) > free:
        yield (
            f"the checkpoint takes about {_size(_on_disk(load.state_bytes))}, and its disk has "
            f"{_size(free)} free"
        )


def _small(load: Load) -> str:
    """Batches follow each other without a pause, and small ones cost more a row."""
    if load.cores > MODEL.busy_cores:
        return ""
    return (
        f"; about {MODEL.busy_cores:g} are used where they are free, in small batches that follow "
        "each other without a pause"
    )


def _full(load: Load, free: int | None) -> str:
    if free is None:
        return ""
    days = timedelta(days=int(free / _on_disk(load.growth_bytes_a_day)))
    return f"; the checkpoint's disk ({_size(free)} free) is full in {duration_text(days)}"


def _on_disk(state_bytes: float) -> float:
    return STATE_COPIES * state_bytes


def _side(side: SideLoad) -> str:
    rate = f"{side.rate:,.9g} rows/s"
    if side.held_for is None or side.rows is None:
        return f"{rate}, never evicted: {_rows(side.rows_a_day)} more a day"
    return f"{rate}, held for up to {duration_text(side.held_for)}: {_rows(side.rows)}"


def _state(load: Load) -> str:
    if load.rows is None or load.state_bytes is None:
        return f"grows by {_size(load.growth_bytes_a_day)} a day"
    return (
        f"{_rows(load.rows)}, {_size(load.state_bytes)} on disk; with older versions "
        f"the checkpoint is about {STATE_COPIES} times that"
    )


def _memory(load: Load, means: AvailableResources | None) -> float:
    """A smaller heap than the model's leaves less."""
    limit = None if means is None else means.memory_limit_bytes
    return load.memory_bytes if limit is None else min(load.memory_bytes, limit)


def _limit(means: AvailableResources | None) -> str:
    limit = None if means is None else means.memory_limit_bytes
    return "" if limit is None else f", at most {_size(limit)}"


def _of(means: AvailableResources | None) -> str:
    return "" if means is None else f" of {means.cores}"


def _side_facts(side: SideLoad) -> dict[str, object]:
    return {
        "rows_per_second": side.rate,
        "held_for_seconds": None if side.held_for is None else side.held_for.total_seconds(),
        "rows": side.rows,
        "state_bytes": side.state_bytes,
    }


def _rows(count: float) -> str:
    return f"{float(f'{count:.3g}'):,.0f} rows"


def _size(count: float) -> str:
    unit = 0
    while count >= _A_UNIT and unit < len(_UNITS) - 1:
        count, unit = count / _A_UNIT, unit + 1
    return f"{_significant(count)} {_UNITS[unit]}"


def _significant(value: float) -> str:
    """An estimate has two digits, at most."""
    rounded = float(f"{value:.2g}")
    return f"{rounded:,.0f}" if rounded >= 10 or rounded == int(rounded) else f"{rounded:,.2g}"
