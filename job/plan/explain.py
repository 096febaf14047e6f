"""What a join will do, in the user's terms, from the plan alone: no broker, no Spark."""

from collections.abc import Iterator
from datetime import timedelta

from job.join_spec.durations import duration_text
from job.join_spec.expressions import SIDES, Side
from job.join_spec.spec import Delivery, JoinType
from job.plan.capacity import AvailableResources, expected_load
from job.plan.explain_load import load_facts, load_lines
from job.plan.explain_real_time import dead_letter_lines, delivery_lines, engine_lines
from job.plan.fingerprint import fingerprint
from job.plan.mirrored import mirrored_filters
from job.plan.plan import JoinPlan, SidePlan
from job.plan.tuning import TRANSACTION_TIMEOUT_SECONDS

_WIDTH = 18

_MATCHES = {
    JoinType.INNER: "each pair of matching rows, as soon as both have arrived",
    JoinType.LEFT_OUTER: "each pair of matching rows, as soon as both have arrived",
    JoinType.RIGHT_OUTER: "each pair of matching rows, as soon as both have arrived",
    JoinType.FULL_OUTER: "each pair of matching rows, as soon as both have arrived",
    JoinType.LEFT_SEMI: "each left row once, as soon as its first match has arrived",
    JoinType.LEFT_ANTI: "none: a left row with a match is dropped",
}
_UNMATCHED: dict[JoinType, tuple[Side, ...]] = {
    JoinType.LEFT_OUTER: ("left",),
    JoinType.LEFT_ANTI: ("left",),
    JoinType.RIGHT_OUTER: ("right",),
    JoinType.FULL_OUTER: SIDES,
}


def explained(plan: JoinPlan, means: AvailableResources | None = None) -> str:
    """The whole explanation, one topic a paragraph. `means`: what the job has, if that is known."""
    parts = {
        f"Join {plan.name}": _what(plan),
        **_schemas(plan),
        "What comes out": _output(plan),
        "State": _state(plan),
        **_expected_load(plan, means),
        **_engine(plan),
        "Event time": _event_time(plan),
        "Bad, late and null": _left_out(plan),
        "Delivery": _delivery(plan),
        "Frozen by the checkpoint": _frozen(plan),
    }
    return "\n\n".join(f"{title}\n" + "\n".join(lines) for title, lines in parts.items()) + "\n"


def _engine(plan: JoinPlan) -> dict[str, Iterator[str]]:
    """Nothing where the engine is micro_batch."""
    if plan.real_time is None:
        return {}
    lines = engine_lines(plan, plan.real_time)
    return {"Real time": (_line(name, text) for name, text in lines)}


def facts(made: JoinPlan, means: AvailableResources | None = None) -> dict[str, object]:
    """The plan for programs."""

    def retention_seconds(side: Side) -> float | None:
        retention = made.side(side).retention
        return None if retention is None else retention.total_seconds()

    load = expected_load(made)
    return {
        "name": made.name,
        "join_type": made.join_type.value,
        "engine": made.engine.value,
        "on": made.on,
        "values": {side: _values(made.side(side)) for side in SIDES},
        "retention_seconds": {side: retention_seconds(side) for side in SIDES},
        "expected_load": None if load is None else load_facts(load, means),
        "output_columns": {name: column.text for name, column in made.output.columns.items()},
        "spark_conf": dict(made.spark_conf),
        "source_options": {side: dict(made.side(side).source_options) for side in SIDES},
        "sink_options": dict(made.output.sink_options),
        "frozen": fingerprint(made),
    }


def _values(side: SidePlan) -> dict[str, object]:
    if not side.format.has_registry:
        return {"format": side.format.value}
    reader = side.reader
    return {
        "format": side.format.value,
        "subject": side.subject,
        "schema_id": None if reader is None else reader.schema.id,
        "version": None if reader is None else reader.version,
    }


def _line(name: str, text: str) -> str:
    return f"  {name:<{_WIDTH}}{text}"


def _what(plan: JoinPlan) -> Iterator[str]:
    yield _line("type", plan.join_type.replace("_", " "))
    for side in SIDES:
        yield _line(side, _side(plan, plan.side(side)))
    operator = "<=>" if plan.null_safe else "="
    pairs = zip(plan.left.key, plan.right.key, strict=True)
    yield _line("key", " and ".join(f"left {a.text} {operator} right {b.text}" for a, b in pairs))
    yield _line("in time", _time_bound(plan))
    if plan.condition is not None:
        yield _line("and", plan.condition.text)
        yield from _condition_sides(plan)
    yield _line("into", f"topic {plan.output.topic}")
    yield _line("at", f"{plan.bootstrap_servers}, {_security(plan)}")


def _security(plan: JoinPlan) -> str:
    if plan.security is None:
        return "unencrypted and without login"
    unencrypted = "" if plan.security.protocol.is_encrypted else ", unencrypted"
    return f"{plan.security}{unencrypted}"


def _side(plan: JoinPlan, side: SidePlan) -> str:
    where = f", only rows with {side.filter.text}" if side.filter else ""
    mirrored = " and ".join(part.text for part in mirrored_filters(plan, side.side))
    implied = f", only rows that can match: {mirrored}" if mirrored else ""
    return f"topic {side.topic}{where}{implied}"


def _time_bound(plan: JoinPlan) -> str:
    if plan.window is not None:
        return f"both in the same window of {duration_text(plan.window)}, from its start on"
    left, right = f"left {plan.left.event_time}", f"right {plan.right.event_time}"
    if plan.match_window is None:
        if plan.event_time_in_key:
            return f"{left} = {right}, which is part of the key"
        return "no bound"
    before, after = plan.match_window.before, plan.match_window.after
    bounds = []
    if before is not None:
        bounds.append(f"{right} >= {left}{_shift(-before)}")
    if after is not None:
        bounds.append(f"{right} <= {left}{_shift(after)}")
    return " and ".join(bounds)


def _shift(by: timedelta) -> str:
    if by == timedelta(0):
        return ""
    return f" + {duration_text(by)}" if by > timedelta(0) else f" - {duration_text(-by)}"


def _condition_sides(plan: JoinPlan) -> Iterator[str]:
    """A part of ON never drops a row of an outer side: it only keeps it from matching."""
    outer = _UNMATCHED.get(plan.join_type, ())
    if outer:
        kept = " and ".join(outer)
        yield _line("", f"(part of ON: a {kept} row that fails it still comes out, unmatched)")


def _schemas(plan: JoinPlan) -> dict[str, Iterator[str]]:
    """Nothing where both sides are JSON."""
    sides = [plan.side(side) for side in SIDES if plan.side(side).format.has_registry]
    return {"Schemas": _of_registry(plan, sides)} if sides else {}


def _of_registry(plan: JoinPlan, sides: list[SidePlan]) -> Iterator[str]:
    for side in sides:
        pinned = "the newest when the job starts; no registry has said which"
        if side.reader is not None:
            pinned = f"schema {side.reader.schema.id} (version {side.reader.version})"
        yield _line(side.side, f"{side.format.capitalize()}, subject {side.subject}, {pinned}")
        columns = ", ".join(f"{column.name} {column.type}" for column in side.schema.columns)
        yield _line("", f"read as {columns}")
    if plan.schema_registry is not None:
        yield _line("registry", plan.schema_registry.url)
    yield _line("evolution", "the schema stays the same as long as the job runs. A record with")
    yield _line("", "another id is read by it: Avro by schema resolution (added fields need")
    yield _line("", "a default), Protobuf by field numbers; what it cannot read is a bad")
    yield _line("", "record (incompatible_schema). A restart takes the newest version if that")
    yield _line("", "reads all records of the old one, and is refused otherwise")


def _output(plan: JoinPlan) -> Iterator[str]:
    yield _line("matches", _MATCHES[plan.join_type])
    sides = _UNMATCHED.get(plan.join_type, ())
    if not sides:
        yield _line("unmatched rows", "never come out")
    for side in sides:
        yield _line(f"unmatched {side}", _when_unmatched(plan, side))
    if sides:
        yield from _silence(plan)
    yield _line("columns", ", ".join(plan.output.columns))
    if plan.output.filter is not None:
        yield _line("only rows with", plan.output.filter.text)
    key = plan.output.key.text if plan.output.key else "none"
    yield _line("record key", key)
    yield _line("record header", "streamjoin-id: the same result has the same id, always")


def _silence(plan: JoinPlan) -> Iterator[str]:
    yield _line("", "Both topics must move on for that: the slower one decides.")
    waiting = [side for side in SIDES if plan.side(side).idle_after is None]
    if len(waiting) == len(SIDES):
        yield _line("", "While one is silent, no unmatched row comes out.")
    elif waiting:
        yield _line("", f"While the {waiting[0]} one is silent, no unmatched row comes out: it has")
        yield _line("", "no idle_after.")
    else:
        yield _line("", "One that is silent follows the clock (idle_after).")


def _when_unmatched(plan: JoinPlan, side: Side) -> str:
    return f"once the watermark {_passes(plan, side)}"


def _passes(plan: JoinPlan, side: Side) -> str:
    if plan.window is not None:
        return "has reached the end of its window"
    retention = plan.side(side).retention
    assert retention is not None, "outer joins without a bound are refused"
    return f"is past its {plan.side(side).event_time}{_shift(retention)}"


def _state(plan: JoinPlan) -> Iterator[str]:
    for side in SIDES:
        yield _line(side, _retention(plan, side))
    yield _line("held of a row", "its position in Kafka (8 bytes) and")
    for side in SIDES:
        columns = ", ".join(column.name for column in plan.side(side).kept_columns)
        yield _line(f"  {side}", columns)
    yield _line("kept in", f"RocksDB, {plan.state_partitions} partitions, {plan.checkpoint}")
    silent = [side for side in SIDES if plan.side(side).expected_rate is None]
    if silent:
        say = " and ".join(silent) + (" say" if len(silent) == len(SIDES) else " says")
        yield _line("how much", f"estimated here once {say} expected_rate (records per second)")


def _expected_load(plan: JoinPlan, means: AvailableResources | None) -> dict[str, Iterator[str]]:
    """Nothing where the spec does not say what to expect."""
    load = expected_load(plan)
    if load is None:
        return {}
    return {"Expected load": (_line(name, text) for name, text in load_lines(load, means))}


def _retention(plan: JoinPlan, side: Side) -> str:
    retention = plan.side(side).retention
    if retention is None:
        return "WITHOUT END: rows are never evicted, state grows for ever (unbounded_state)"
    if plan.window is not None:
        return f"kept until the watermark reaches the end of its window ({_trailing(plan)})"
    return f"kept until the watermark {_passes(plan, side)} ({_trailing(plan)})"


def _trailing(plan: JoinPlan) -> str:
    longest = max(plan.left.watermark_delay, plan.right.watermark_delay)
    return f"the watermark trails the newest event times by up to {duration_text(longest)}"


def _event_time(plan: JoinPlan) -> Iterator[str]:
    for side in SIDES:
        of_side = plan.side(side)
        yield _line(
            side,
            f"{of_side.event_time}; a row may come {duration_text(of_side.watermark_delay)} "
            f"behind the newest {of_side.event_time} read",
        )
        yield from _ahead(of_side)
        if of_side.idle_after is not None:
            yield from _idle(of_side.idle_after, of_side.watermark_delay)
    yield _line("watermark", "the smaller of the two sides' event time minus delay. The event time")
    yield _line("", "of a side is the newest one read of its topic. While partitions have a")
    yield _line("", "backlog, it is that of the partition with a backlog that is furthest")
    yield _line("", "behind: a row that is in order in its partition, within the delay, is")
    yield _line("", "never late during a catch-up. Every readable record counts, also those")
    yield _line("", "that a filter drops. It takes effect with the next batch, and never goes")
    yield _line("", "back")


def _idle(after: timedelta, delay: timedelta) -> Iterator[str]:
    trailing = duration_text(after + delay)
    yield _line("", f"after {duration_text(after)} without a record and without a backlog its")
    yield _line("", f"event time follows the clock, {trailing} behind it: a row that arrives")
    yield _line("", "then with an older event time is late. Replays of the past must not pause")


def _ahead(side: SidePlan) -> Iterator[str]:
    if side.event_time == "record_timestamp":
        yield _line("", "(Kafka's own timestamp: how far ahead it may be is the broker's to say,")
        yield _line("", "message.timestamp.after.max.ms)")
        return
    ahead = duration_text(side.max_event_time_ahead)
    yield _line("", f"and up to {ahead} ahead of its record's Kafka timestamp; further")
    yield _line("", "ahead it is a bad record (future_event_time)")


def _left_out(plan: JoinPlan) -> Iterator[str]:
    late = "the end of its window is not past" if plan.window else "its event time is not past"
    letters = plan.dead_letter
    goes = "a dead letter" if letters and letters.takes_late_rows else "dropped"
    yield _line("late rows", f"a row is late when {late} the watermark: counted and {goes},")
    yield _line("", "whether or not it could still match")
    yield _line("bad records", _bad_records(plan))
    yield _line("null keys", _null_keys(plan))
    yield _line("too large results", _too_large(plan))
    if letters is not None:
        yield from _dead_letters(plan, letters.topic)


def _bad_records(plan: JoinPlan) -> str:
    if plan.fails_on_bad_records:
        return "the query FAILS at the first one, and names it"
    where = "sent to the dead-letter topic" if plan.dead_letter else "dropped"
    return f"counted by side and reason, and {where}"


def _too_large(plan: JoinPlan) -> str:
    if plan.fails_on_bad_records:
        return "the query FAILS at the first one, and names it"
    if plan.dead_letter is None:
        return "counted and dropped"
    return "counted, and named in the dead-letter topic without their value"


def _dead_letters(plan: JoinPlan, topic: str) -> Iterator[str]:
    if plan.real_time is not None:
        yield from (_line(name, text) for name, text in dead_letter_lines(topic))
        return
    yield _line(
        "dead letters", f"into topic {topic}: key, value and headers as they were, and what"
    )
    yield _line("", "was wrong in headers __streamjoin.errors.*. While nothing is bad they cost")
    yield _line("", "nothing; a batch with one reads its side's records a second time")
    if plan.output.delivery is Delivery.EXACTLY_ONCE:
        yield _line("", "Each comes once, for readers that set isolation.level=read_committed")
    else:
        yield _line("", "None is lost; after a failure some may come twice")


def _null_keys(plan: JoinPlan) -> str:
    if plan.dead_letter is not None and plan.dead_letter.takes_null_keys:
        return "counted and sent to the dead-letter topic"
    if not plan.null_keys_pass:
        return "counted and dropped"
    if plan.null_safe:
        return "counted; a null key matches a null key"
    outer = " and ".join(_UNMATCHED.get(plan.join_type, ()))
    tail = f"; a {outer} row with one comes out unmatched, at once" if outer else ""
    return f"counted; a null key matches nothing{tail}"


def _delivery(plan: JoinPlan) -> Iterator[str]:
    if plan.output.delivery is Delivery.EXACTLY_ONCE:
        yield from _exactly_once(plan)
        return
    if plan.real_time is not None:
        yield from (_line(name, text) for name, text in delivery_lines(plan.real_time))
        return
    yield _line("at least once", "no result is lost; after a failure some may come twice, with the")
    yield _line("", "same streamjoin-id. A stop or restart on purpose repeats nothing.")


def _exactly_once(plan: JoinPlan) -> Iterator[str]:
    timeout = duration_text(timedelta(seconds=TRANSACTION_TIMEOUT_SECONDS))
    yield _line("exactly once", "each result comes out once, whatever fails, for readers that set")
    yield _line("", "isolation.level=read_committed (the Java client by itself does not)")
    partitions = f"each of {plan.state_partitions} partitions"
    yield _line("transactions", f"one for each batch and {partitions}, which")
    yield _line("", "become visible one after another")
    yield _line("transactional.id", f"streamjoin-{plan.name}-<partition>")
    yield _line("commit topic", f"{plan.output.commit_topic}: says what is out. Compacted; made at")
    yield _line("", "the first start where it is missing. Never delete it")
    yield _line("timeout", f"a transaction open for longer than {timeout} is tried again; after a")
    yield _line("", "crash that nobody restarts, readers wait so long")


def _frozen(plan: JoinPlan) -> Iterator[str]:
    yield "  A start with another value of these is refused; all else may change between starts."
    for field, value in fingerprint(plan).items():
        yield f"  {field:<32}{value}"
