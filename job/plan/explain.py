"""The text of `streamjoin plan`, from the JoinPlan only: no broker, no Spark."""

from collections.abc import Iterable, Iterator, Mapping
from datetime import timedelta

from job.formats.schemas import ReaderSchema
from job.plan.capacity import AvailableResources, expected_load
from job.plan.explain_deduplication import stored_id_lines
from job.plan.explain_join import key_terms, passes, time_bound
from job.plan.explain_left_out import left_out_lines
from job.plan.explain_load import load_as_json, load_lines
from job.plan.explain_operator import operator_lines
from job.plan.explain_real_time import (
    Line,
    at_least_once_lines,
    engine_lines,
    transaction_lines,
)
from job.plan.explain_schemas import key_as_json, output_as_json, schema_lines
from job.plan.explain_summary import summary_lines
from job.plan.explain_table import emission_lines, loading_lines, matches_text, retention_text
from job.plan.explain_topics import topic_check_lines
from job.plan.fingerprint import fingerprint
from job.plan.plan import JoinPlan
from job.plan.side_plan import SidePlan
from job.plan.tuning import TRANSACTION_TIMEOUT_SECONDS
from job.plan.warnings import warnings
from job.spec.durations import duration_text, instant_text
from job.spec.join_conditions import JoinType
from job.spec.output import Delivery
from job.spec.sides import SIDES, Side
from job.spec.table import KAFKA_TIMESTAMP
from job.spec.value_format import Format, KeyFormat
from job.sql.time_zones import UTC

_WIDTH = 18

_MATCHES = {
    JoinType.INNER: "each pair of matching rows, as soon as both are read",
    JoinType.LEFT_OUTER: "each pair of matching rows, as soon as both are read",
    JoinType.RIGHT_OUTER: "each pair of matching rows, as soon as both are read",
    JoinType.FULL_OUTER: "each pair of matching rows, as soon as both are read",
    JoinType.LEFT_SEMI: "each left row once, as soon as its first match is read",
    JoinType.LEFT_ANTI: "none: a left row with a match is dropped",
    JoinType.RIGHT_SEMI: "each right row once, as soon as its first match is read",
    JoinType.RIGHT_ANTI: "none: a right row with a match is dropped",
}


def summarized(plan: JoinPlan, resources: AvailableResources | None = None) -> str:
    """The first lines of the complete text, at most ten. Arguments as `explained`."""
    return _text({f"Join {plan.name}": summary_lines(plan, resources)})


def explained(plan: JoinPlan, resources: AvailableResources | None = None) -> str:
    """The complete text. `resources`: what the job can use. None: unknown."""
    parts: dict[str, Iterable[Line | str]] = {
        f"Join {plan.name}": summary_lines(plan, resources),
        "Inputs and output": _join(plan),
        **_warnings(plan),
        **_schemas(plan),
        "Results": _output(plan),
        "State": _state(plan, resources),
        **_expected_load(plan, resources),
        **_table(plan),
        **_engine(plan),
        "Event time": _event_time(plan),
        "Bad records, late rows, null keys": left_out_lines(plan),
        "Delivery": _delivery(plan),
        "Checked at each start": topic_check_lines(plan),
        "Frozen by the checkpoint": _frozen(plan),
    }
    return _text(parts)


def _text(parts: Mapping[str, Iterable[Line | str]]) -> str:
    sections = ("\n".join([title, *map(_line, lines)]) for title, lines in parts.items())
    return "\n\n".join(sections) + "\n"


def _line(line: Line | str) -> str:
    """`line`: the text, or a name and a text."""
    text = line if isinstance(line, str) else f"{line[0]:<{_WIDTH}}{line[1]}"
    return f"  {text}"


def _engine(plan: JoinPlan) -> dict[str, Iterator[Line]]:
    """The section of the real-time engine. Empty: the engine is micro_batch."""
    return {} if plan.real_time is None else {"Real time": engine_lines(plan, plan.real_time)}


def _table(plan: JoinPlan) -> dict[str, Iterator[Line]]:
    """Empty: the join has two streams."""
    return {} if plan.table_side is None else {"Table": loading_lines(plan, plan.table_side)}


def plan_as_json(made: JoinPlan, resources: AvailableResources | None = None) -> dict[str, object]:
    """The plan as JSON values."""

    def retention_seconds(side: Side) -> float | None:
        retention = made.side(side).retention
        return None if retention is None else retention.total_seconds()

    load = expected_load(made)
    return {
        "name": made.name,
        "summary": dict(summary_lines(made, resources)),
        "join_type": made.join_type.value,
        "engine": made.engine.value,
        "warnings": list(warnings(made)),
        "on": made.on,
        "values": {side: _values(made.side(side)) for side in SIDES},
        "retention_seconds": {side: retention_seconds(side) for side in SIDES},
        "expected_load": None if load is None else load_as_json(load, resources),
        "output": output_as_json(made),
        "output_key": key_as_json(made),
        "output_columns": {name: column.text for name, column in made.output.columns.items()},
        "output_headers": {name: header.text for name, header in made.output.headers.items()},
        "spark_conf": dict(made.spark_conf),
        "source_options": {side: dict(made.side(side).source_options) for side in SIDES},
        "sink_options": dict(made.output.sink_options),
        "frozen": fingerprint(made),
    }


def _values(side: SidePlan) -> dict[str, object]:
    settings: dict[str, object] = {}
    if side.has_typed_keys:
        settings |= {"key_format": side.key_format.value, "record_key": str(side.record_key.type)}
    if side.keys_have_registry:
        pinned = _pinned(side.key_subject, side.key_reader)
        settings |= {f"key_{name}": value for name, value in pinned.items()}
    if not side.format.has_registry:
        csv = {"csv": side.csv.model_dump()} if side.format is Format.CSV else {}
        return {"format": side.format.value, **csv, **settings}
    return {"format": side.format.value, **_pinned(side.subject, side.reader), **settings}


def _pinned(subject: str, reader: ReaderSchema | None) -> dict[str, object]:
    return {
        "subject": subject,
        "schema_id": None if reader is None else reader.schema.id,
        "version": None if reader is None else reader.version,
    }


def _join(plan: JoinPlan) -> Iterator[Line]:
    yield "type", plan.join_type.replace("_", " ")
    for side in SIDES:
        yield side, _side(plan.side(side))
        for column in plan.side(side).named_columns:
            yield "", f"column {column.name} {column.column.type} = {column.value.text}"
    yield "key", key_terms(plan)
    yield "event times", time_bound(plan)
    if plan.condition is not None:
        yield "condition", plan.condition.text
        yield from _condition_sides(plan)
    yield "output", f"topic {plan.output.topic}"
    yield "brokers", f"{plan.bootstrap_servers}, {_security(plan)}"


def _security(plan: JoinPlan) -> str:
    if plan.security is None:
        return "unencrypted and without login"
    unencrypted = "" if plan.security.protocol.is_encrypted else ", unencrypted"
    return f"{plan.security}{unencrypted}"


def _side(side: SidePlan) -> str:
    where = f", only rows with {side.filter.text}" if side.filter else ""
    mirrored = " and ".join(part.text for part in side.mirrored)
    implied = f", only rows that can match: {mirrored}" if mirrored else ""
    noun = "topics" if side.topics.are_several else "topic"
    if side.topics.pattern is not None:
        noun = "topics that match"
    unique = f", without duplicates by {side.deduplication}" if side.deduplication else ""
    envelopes = f", envelopes of {side.envelope.capitalize()}" if side.envelope else ""
    return f"{noun} {side.topic}{envelopes}{where}{implied}{unique}"


def _condition_sides(plan: JoinPlan) -> Iterator[Line]:
    """The condition never drops a row of an outer side; it only prevents matches."""
    outer = plan.join_type.outer_sides
    if outer:
        sides = " or ".join(outer)
        yield "", f"(part of ON: a {sides} row that fails it is emitted as unmatched)"


def _schemas(plan: JoinPlan) -> dict[str, list[Line]]:
    """Empty if all values are JSON."""
    lines = list(schema_lines(plan))
    return {"Schemas": lines} if lines else {}


def _warnings(plan: JoinPlan) -> dict[str, list[str]]:
    """Empty if there is none."""
    found = list(warnings(plan))
    return {"Warnings": found} if found else {}


def _output(plan: JoinPlan) -> Iterator[Line]:
    yield "matches", _matches(plan)
    if plan.table_side is None:
        yield from _unmatched(plan)
    else:
        yield from emission_lines(plan, plan.table_side)
    yield "columns", ", ".join(plan.output.columns)
    if plan.output.filter is not None:
        yield "filter", plan.output.filter.text
    key = plan.output.key.text if plan.output.key else "none"
    key_format = plan.output.key_format
    shown = "" if key_format is KeyFormat.STRING else f", format {key_format.value}"
    yield "record key", f"{key}{shown}"
    if plan.output.partition_by is not None:
        chosen = f"{plan.output.partition_by.text}, by the partitioner of Kafka's clients"
        yield "partition", f"chosen by the text of {chosen}"
        yield "", "for the number of partitions at the start; null: the key chooses"
    if plan.output.has_event_time:
        of = "the greater event time of the two rows"
        yield "timestamp", of if plan.table_side is None else f"event time of {plan.streams[0]}"
    yield "record header", "streamjoin-id: the same result always has the same id"
    if plan.matched_side in plan.join_type.shown_sides:
        yield "", f"streamjoin-match: the place of the record of the {plan.matched_side} side"
    if plan.output.headers:
        yield "more headers", ", ".join(plan.output.headers)


def _matches(plan: JoinPlan) -> str:
    if plan.pick is not None:
        return f"the {plan.pick} match of each left row, once the watermark {passes(plan, 'left')}"
    return _MATCHES[plan.join_type] if plan.table_side is None else matches_text(plan)


def _unmatched(plan: JoinPlan) -> Iterator[Line]:
    sides = plan.join_type.outer_sides
    if not sides:
        yield "unmatched rows", "are not emitted"
    for side in sides:
        yield f"unmatched {side}", f"once the watermark {passes(plan, side)}"
    if sides:
        yield from _idle_sides(plan)


def _idle_sides(plan: JoinPlan) -> Iterator[Line]:
    waiting = [side for side in SIDES if plan.side(side).idle_after is None]
    if not waiting:
        yield "", "The watermark follows the slower topic; the event time of an idle side"
        yield "", "follows the clock (idle_after)"
        return
    idle = "one side" if len(waiting) == len(SIDES) else f"the {waiting[0]} side"
    yield "", f"The watermark follows the slower topic. While {idle} is idle, it does"
    yield "", "not advance and no unmatched rows are emitted: see idle_after"


def _state(plan: JoinPlan, resources: AvailableResources | None) -> Iterator[Line]:
    yield from operator_lines(plan, resources)
    for side in SIDES:
        yield side, _retention(plan, side)
    yield "stored columns", "the position in Kafka (8 bytes) and"
    for side in [each for each in SIDES if plan.stream_waits or plan.table_side in {None, each}]:
        columns = ", ".join(column.name for column in plan.side(side).kept_columns)
        yield f"  {side}", columns
    for side in plan.deduplicated:
        yield from stored_id_lines(plan, side)
    yield "stored in", f"RocksDB, {plan.state_partitions} partitions, {plan.checkpoint}"
    missing = [f"{side}.expected_rate" for side in SIDES if plan.side(side).expected_rate is None]
    table = plan.table_side
    if table is not None and (of_table := plan.side(table).table) is not None:
        missing += [f"{table}.table.expected_keys"] * (of_table.expected_keys is None)
    if missing:
        units = "records per second" if table is None else "records per second, and keys"
        yield "size", f"set {' and '.join(missing)} ({units}) for an estimate"


def _expected_load(
    plan: JoinPlan, resources: AvailableResources | None
) -> dict[str, Iterator[Line]]:
    """Empty if a side has no expected_rate."""
    load = expected_load(plan)
    return {} if load is None else {"Expected load": load_lines(load, resources)}


def _retention(plan: JoinPlan, side: Side) -> str:
    if plan.table_side is not None:
        return retention_text(plan, plan.table_side, side)
    retention = plan.side(side).retention
    if retention is None:
        return "WITHOUT BOUND: rows are never evicted, state grows indefinitely (unbounded_state)"
    if plan.window is not None:
        days = "" if plan.window.time_zone == UTC else f"up to {duration_text(retention)} long; "
        return f"kept until the watermark reaches the end of its window ({days}{_trailing(plan)})"
    return f"kept until the watermark {passes(plan, side)} ({_trailing(plan)})"


def _trailing(plan: JoinPlan) -> str:
    longest = max(plan.left.watermark_delay, plan.right.watermark_delay)
    return f"the watermark trails the newest event times by up to {duration_text(longest)}"


def _event_time(plan: JoinPlan) -> Iterator[Line]:
    for side in SIDES:
        side_plan = plan.side(side)
        if not plan.uses_event_times or (side == plan.table_side and not plan.is_as_of):
            is_kafkas = side_plan.event_time_text == KAFKA_TIMESTAMP
            yield side, "the Kafka timestamp" if is_kafkas else side_plan.event_time_text
            if is_kafkas:
                continue
        elif side == plan.table_side:
            delay = duration_text(side_plan.watermark_delay)
            if plan.is_final:
                yield side, f"{side_plan.event_time_text}; a version may be read {delay} late"
            else:
                yield side, f"{side_plan.event_time_text}; a version may be {delay} older than one"
                yield "", "that deletes its key and was read before"
        else:
            newest = "one" if side_plan.has_event_time_expression else side_plan.event_time
            rows = f"rows may be up to {duration_text(side_plan.watermark_delay)} behind"
            yield side, f"{side_plan.event_time_text}; {rows} the newest {newest} read"
        if side_plan.time_zone != UTC:
            yield "", f"expressions, and times without an offset: {side_plan.time_zone}"
        yield from _ahead(side_plan)
        earliest = instant_text(side_plan.min_event_time)
        yield "", f"an event time before {earliest} is a bad record (absurd_event_time)"
        if side_plan.idle_after is not None:
            yield from _idle(side_plan.idle_after, side_plan.watermark_delay)
    if not plan.uses_event_times:
        yield "order", "no result depends on event times, and none waits for the watermark"
        return
    of = "the smaller of the two sides' event time"
    if plan.table_side is not None:
        of = f"the event time of the {plan.streams[0]} side"
    yield "watermark", f"{of} minus watermark_delay. The"
    yield "", "event time of a side is the newest one read from its topic. While"
    yield "", "partitions have a backlog, it is the event time of the one that is"
    yield "", "furthest behind: a row that is in order in its partition, within the"
    yield "", "delay, is never late during a catch-up. All readable records count,"
    if plan.real_time is None:
        yield "", "including those that a filter drops. A new watermark applies from the"
        yield "", "next batch; the watermark never decreases"
    else:
        yield "", "including those that a filter drops. It never decreases"


def _idle(after: timedelta, delay: timedelta) -> Iterator[Line]:
    trailing = duration_text(after + delay)
    yield ("", f"after {duration_text(after)} without records and backlog the side is idle: its")
    yield "", f"event time follows the clock, {trailing} behind it. Rows that then"
    yield "", "arrive with an older event time are late: a replay must not pause this long"


def _ahead(side: SidePlan) -> Iterator[Line]:
    if side.event_time == "record_timestamp":
        yield "", "(the Kafka timestamp; message.timestamp.after.max.ms of the broker limits"
        yield "", "how far ahead of the clock it may be)"
        return
    ahead = duration_text(side.max_event_time_ahead)
    yield "", f"and up to {ahead} ahead of their record's Kafka timestamp; a record further"
    yield "", "ahead is a bad record (future_event_time)"


def _delivery(plan: JoinPlan) -> Iterator[Line]:
    if plan.output.delivery is Delivery.EXACTLY_ONCE:
        yield from _exactly_once(plan)
        return
    if plan.real_time is not None:
        yield from at_least_once_lines(plan.real_time)
        return
    yield ("at least once", "no result is lost; after a failure some may be written twice, with")
    yield "", "the same streamjoin-id. A regular stop or restart repeats nothing."


def _exactly_once(plan: JoinPlan) -> Iterator[Line]:
    timeout = duration_text(timedelta(seconds=TRANSACTION_TIMEOUT_SECONDS))
    yield ("exactly once", "each result is written once, also after failures, for consumers that")
    yield "", "set isolation.level=read_committed (not the default of the Java client)"
    yield from _transactions(plan)
    yield "transactional.id", f"streamjoin-{plan.name}-<partition>"
    yield ("commit topic", f"{plan.output.commit_topic}: markers of committed batches. Compacted;")
    yield "", "created at the first start if it is missing. Never delete it"
    if plan.real_time is not None:
        yield "", "It also contains the ids of the results of the last intervals"
    yield ("timeout", f"a transaction open for longer than {timeout} is aborted and retried. After")
    yield "", "a crash without restart, consumers wait this long"


def _transactions(plan: JoinPlan) -> Iterator[Line]:
    if plan.real_time is not None:
        yield from transaction_lines(plan, plan.real_time)
        return
    yield (
        "transactions",
        f"one per batch and state partition ({plan.state_partitions}); they become",
    )
    yield "", "visible one after another"


def _frozen(plan: JoinPlan) -> Iterator[str]:
    yield "A start with a different value fails. All other settings may change between starts."
    for field, value in fingerprint(plan).items():
        yield f"{field:<32}{value}"
