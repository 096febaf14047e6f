"""The state of a running job as lines of text. Pure."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime

from job.api.offsets import OffsetsView
from job.api.query import BatchView, QueryView, SideView
from job.protocol.latency import LATENCY_WINDOW
from job.protocol.progress import WHOLE_BATCH
from job.protocol.reports import CommandReport
from job.protocol.status import Failure, QueryState
from job.spec.durations import duration_text, rounded_text
from job.spec.engine import Engine
from job.spec.sides import SIDES

UNKNOWN = "-"
_SENTENCE_END = re.compile(r"\n|(?<=\.) (?=[A-Z])")
PHASES_MAX = 4
"""Phases of a batch in a line: the others take a few milliseconds."""
PHASE_WORDS = {
    "add_batch": "read, join and deliver",
    "query_planning": "plan",
    "latest_offset": "request the ends",
    "wal_commit": "record the offsets",
    "commit_offsets": "commit",
}
"""Phases of a batch by their names in Spark. The page has the same."""


def state_lines(query: QueryView, now: datetime) -> Iterator[str]:
    """The answer of `streamjoin status`."""
    yield name_text(query)
    yield state_text(query, now)
    yield from event_lines(query)
    if query.diagnosis:
        yield query.diagnosis
    yield ""
    yield from aligned(
        [
            ("", *SIDES),
            *((name, *cells) for name, cells in side_rows(query, now)),
            *((name, *cells) for name, cells in _dropped_rows(query)),
        ]
    )
    yield ""
    yield from aligned([*query_rows(query, now), *_other_rows(query)])


def progress_line(query: QueryView, now: datetime) -> str:
    """One line with what the query has done, and how far it is behind."""
    sides = [query.side(side) for side in SIDES]
    read = " + ".join(number(side.input_records) for side in sides)
    bad = sum(sum(side.bad_records.values()) for side in sides)
    lag = " + ".join(number(side.offsets_behind_latest_total) for side in sides)
    watermark = "none yet" if query.watermark is None else behind(query.watermark, now)
    return (
        f"{now:%H:%M:%S}Z {query.state}: read {read}, joined {query.output_records:,}, "
        f"late {query.late_rows:,}, bad {bad:,}, watermark {watermark}, lag {lag} records"
    )


def name_text(query: QueryView) -> str:
    return f"{query.name}  {query.join_type}, {query.delivery}"


def state_text(query: QueryView, now: datetime) -> str:
    phase = "" if query.phase is None else f", {query.phase.replace('_', ' ')}"
    if query.table_records_left is not None:
        phase += f" ({query.table_records_left:,} records left)"
    lasting = rounded_text(now - query.state_since)
    return f"{query.state}{phase} since {clock(query.state_since)}, {lasting}"


def event_lines(query: QueryView) -> Iterator[str]:
    """The last failure and the last command."""
    failure = query.last_failure
    if failure is not None:
        over_at, at = _over_at(failure, query), clock(failure.at)
        if over_at is None and failure.message in query.diagnosis:
            yield f"last failure at {at}: {failure.code}"
        elif over_at is None:
            yield f"last failure at {at}: {failure.message}"
        else:
            first = _SENTENCE_END.split(failure.message, maxsplit=1)[0].rstrip(".:")
            yield f"last failure at {at}, over since {clock(over_at)}: {failure.code}, {first}."
    if query.commands:
        yield _command(query.commands[-1])


def _over_at(failure: Failure, query: QueryView) -> datetime | None:
    """Time from which the failure has no effect. None: it may still have one."""
    if query.state is QueryState.RUNNING and failure.at < query.state_since:
        return query.state_since
    reset_at = None if query.last_reset is None else query.last_reset.completed_at
    return reset_at if reset_at is not None and failure.at < reset_at else None


def _command(command: CommandReport) -> str:
    reason = "" if command.reason is None else f": {command.reason}"
    return f"last command: {command.verb} by {command.by} at {clock(command.at)}{reason}"


def side_rows(query: QueryView, now: datetime) -> Iterator[tuple[str, tuple[str, ...]]]:
    """A name and a cell per side."""

    def row(name: str, cells: Iterable[str]) -> tuple[str, tuple[str, ...]]:
        return name, tuple(cells)

    sides = [query.side(side) for side in SIDES]
    tables = {side: " (table)" if side == query.table else "" for side in SIDES}
    topics = zip(sides, tables.values(), strict=True)
    yield row("topic", (f"{side.topic or UNKNOWN}{table}" for side, table in topics))
    yield row("records read", (number(side.input_records) for side in sides))
    yield row("unread", (number(side.offsets_behind_latest_total) for side in sides))
    yield row("newest event", (behind(side.event_time_max, now) for side in sides))
    yield row("bad records", map(_bad, sides))
    yield row("rows in state", (_counted(side.state_rows, query, now) for side in sides))


def _dropped_rows(query: QueryView) -> Iterator[tuple[str, tuple[str, ...]]]:
    """As `side_rows`, of records that no screen has room for."""
    sides = [query.side(side) for side in SIDES]
    for name, counts in (
        ("filtered", [side.filtered_records for side in sides]),
        ("null keys", [side.null_key_records for side in sides]),
        ("duplicates", [side.duplicate_rows for side in sides]),
        ("skipped", [side.skipped_records for side in sides]),
    ):
        if any(counts):
            yield name, tuple(map(number, counts))


def _counted(rows: int | None, query: QueryView, now: datetime) -> str:
    """`counted at 12:00:00Z: 1,234`. The rows may be others by now."""
    at = query.state_counted_at
    if rows is None or at is None:
        return number(rows)
    is_today = at.astimezone(UTC).date() == now.astimezone(UTC).date()
    return f"counted at {clock(at)[11:] if is_today else clock(at)}: {rows:,}"


def _bad(side: SideView) -> str:
    return _by_reason(side.bad_records)


def _by_reason(counts: Mapping[str, int]) -> str:
    """`3: 2 malformed_json, 1 tombstone`"""
    reasons = {reason: count for reason, count in counts.items() if count}
    total = number(sum(reasons.values()))
    listed = ", ".join(f"{count:,} {reason}" for reason, count in sorted(reasons.items()))
    return f"{total}: {listed}" if listed else total


def query_rows(query: QueryView, now: datetime) -> Iterator[tuple[str, str]]:
    kinds = f"{query.matched_results:,} matched, {query.unmatched_results:,} unmatched"
    yield "results", f"{number(query.output_records)}: {kinds}"
    output = query.output
    ends = number(output.end_offsets_total)
    yield "output", f"{output.topic or UNKNOWN}, sum of its end offsets {ends}"
    if query.latency is not None or query.state is QueryState.RUNNING:
        yield "latency", _latency(query)
    yield "late rows", number(query.late_rows)
    yield "watermark", _watermark(query, now)
    if (batch := query.last_batch) is not None:
        records = f"{batch.input_records:,} records, {batch.output_records:,} results"
        yield "last batch", f"{batch.duration_seconds:.2f} s, {records}"
        yield "its phases", _phases(batch)
    if query.brokers is not None and not query.brokers.reachable:
        yield "brokers", f"no answer: {query.brokers.error}"


def _other_rows(query: QueryView) -> Iterator[tuple[str, str]]:
    """As `query_rows`, of what no screen has room for."""
    if query.filtered_results:
        yield "filtered", f"{query.filtered_results:,} results were dropped by output.filter"
    if any(query.output.bad_results.values()):
        yield "bad results", _by_reason(query.output.bad_results)
    batch = query.last_batch
    if batch is not None and batch.state_rows is not None:
        yield "state rows", f"{batch.state_rows:,} of both sides, after the last batch"


def _latency(query: QueryView) -> str:
    minutes = f"the last {duration_text(LATENCY_WINDOW)}"
    if (latency := query.latency) is not None:
        p50, p99 = latency.p50_seconds, latency.p99_seconds
        return f"p50 {p50:.2f} s, p99 {p99:.2f} s, of the records of {minutes}"
    if query.engine is Engine.MICRO_BATCH:
        return f"no records in {minutes}"
    return "engine real_time does not measure it: see `streamjoin output verify SPEC`"


def _phases(batch: BatchView) -> str:
    """`read, join and deliver 0.25 s, plan 0.04 s`, the longest first."""
    phases = {name: s for name, s in batch.phase_seconds.items() if name != WHOLE_BATCH}
    longest = sorted(phases, key=lambda name: -phases[name])[:PHASES_MAX]
    texts = (f"{PHASE_WORDS.get(name, name)} {phases[name]:.2f} s" for name in longest)
    return ", ".join(texts) or UNKNOWN


def _watermark(query: QueryView, now: datetime) -> str:
    if query.watermark is None:
        return "none yet"
    text = f"{clock(query.watermark)}, {behind(query.watermark, now)}"
    if query.watermark_held_back_by is None:
        return text
    partition = query.watermark_held_back_by_partition
    place = "" if partition is None else f" partition {partition}"
    return f"{text}, held back by {query.watermark_held_back_by}{place}"


def lag_lines(offsets: OffsetsView, now: datetime) -> Iterator[str]:
    """The answer of `streamjoin lag`: a line per side and partition."""
    rows: list[Sequence[str]] = [
        ("side", "topic", "partition", "position", "end", "behind", "event time", "behind now")
    ]
    for side in SIDES:
        view = offsets.side(side)
        for label, partition in view.partitions.items():
            topic, _, number_of_partition = label.rpartition("/")
            rows.append(
                (
                    *(side, topic or view.topic or UNKNOWN, number_of_partition),
                    *map(number, (partition.read, partition.latest, partition.behind_latest)),
                    UNKNOWN if partition.event_time is None else clock(partition.event_time),
                    _age(partition.event_time, now),
                )
            )
    yield from aligned(rows, right={3, 4, 5})
    for side in SIDES:
        for label, partition in offsets.side(side).partitions.items():
            if (headroom := partition.retention_headroom) is not None and headroom < 0:
                yield (
                    f"{side} partition {label}: {-headroom:,} offsets were deleted before they "
                    "were read: `streamjoin checkpoint skip-gap` or `streamjoin reset` continues"
                )
    if offsets.error is not None:
        last = "never" if offsets.answered_at is None else clock(offsets.answered_at)
        yield f"the brokers do not answer (last answer: {last}): {offsets.error}"
    elif len(rows) == 1:
        yield "no offsets yet: the job has not asked the brokers"
    elif (at := offsets.answered_at) is not None:
        age = rounded_text(now - at)
        yield f"end and behind as of {clock(at)}, {age} ago: the last poll of the brokers"


def aligned(
    rows: Iterable[Sequence[str]], right: frozenset[int] | set[int] = frozenset()
) -> Iterator[str]:
    """Lines with the cells in columns. `right`: numbers of the columns aligned to the right."""
    table = [tuple(row) for row in rows]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    for row in table:
        cells = (
            cell.rjust(width) if number in right else cell.ljust(width)
            for number, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        yield "  ".join(cells).rstrip()


def number(count: int | None) -> str:
    return UNKNOWN if count is None else f"{count:,}"


def clock(time: datetime) -> str:
    return f"{time.astimezone(UTC):%Y-%m-%d %H:%M:%S}Z"


def _age(time: datetime | None, now: datetime) -> str:
    if time is None:
        return UNKNOWN
    return f"{'-' * (now < time)}{rounded_text(abs(now - time))}"


def behind(time: datetime | None, now: datetime) -> str:
    """`12.3 s behind now`"""
    if time is None:
        return UNKNOWN
    return f"{rounded_text(now - time)} {'behind' if now >= time else 'ahead of'} now"
