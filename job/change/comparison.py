"""Effects of a changed spec on results near the cut, and changes that are refused. Pure."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta

from job.change import tables
from job.errors import Problem, SpecError
from job.plan.fingerprint import Change, changes, fingerprint
from job.plan.plan import JoinPlan
from job.plan.side_plan import SidePlan
from job.replay.replay import Expired
from job.spec.durations import duration_text, milliseconds
from job.spec.expressions import Expression
from job.spec.join_conditions import MatchWindow
from job.spec.output import Delivery
from job.spec.sides import SIDES, Side

# Results do not depend on them, except on late rows by the engine.
_WITHOUT_EFFECT = {"state_partitions", "engine", "join.operator"}
_PAIRS = ("join.match_window", "join.window", "join.condition", "join.null_safe", "left.key")
# Also settings that decide which records enter the join.
_MATCHING = (
    *(*_PAIRS, "right.key"),
    *(f"{side}.{field}" for side in SIDES for field in ("event_time", "time_zone", "filter")),
    *(f"{side}.{field}" for side in SIDES for field in ("format", "csv", "envelope", "columns")),
    *(f"{side}.{field}" for side in SIDES for field in ("min_event_time", "max_event_time_ahead")),
    "on_null_key",
)


@dataclass(frozen=True)
class Comparison:
    changes: tuple[Change, ...]
    """Changed settings that the state depends on. Empty: the state has the same meaning in both."""
    others: tuple[Change, ...]
    """Other changed settings that decide which records and results there are."""
    effects: tuple[str, ...]
    """Sentences about the effects on results near the cut."""
    expired: tuple[Expired, ...]


def compare(old: JoinPlan, new: JoinPlan, *, is_shadow: bool = False) -> Comparison:
    """Raises SpecError with each field of the new spec whose change is not possible.

    `is_shadow`: both queries run.
    """
    connection = _problems_of_two_queries if is_shadow else _problems_of_one_name
    problems = [*connection(old, new), *_problems(old, new)]
    if problems:
        raise SpecError(problems)
    changed = tuple(changes(fingerprint(old), fingerprint(new)))
    others = tuple(changes(_texts(old), _texts(new)))
    effects, expired = tuple(_effects(old, new, changed)), tuple(_expired(old, new))
    return Comparison(changed, others, effects, expired)


def _problems_of_one_name(old: JoinPlan, new: JoinPlan) -> Iterator[Problem]:
    if old.name != new.name:
        yield Problem("name", new.name, f"must stay {old.name}: the name connects both queries")
    both_exact = old.output.delivery is new.output.delivery is Delivery.EXACTLY_ONCE
    if both_exact and old.output.commit_topic != new.output.commit_topic:
        yield Problem(
            "output.commit_topic",
            new.output.commit_topic,
            f"must stay {old.output.commit_topic}: the old query is fenced there",
        )


def _problems_of_two_queries(old: JoinPlan, new: JoinPlan) -> Iterator[Problem]:
    if old.name == new.name:
        yield Problem(
            "name", new.name, "is the name of the old query, which continues: set another name"
        )
    written_by_old = _written_topics(old).values()
    for field, topic in _written_topics(new).items():
        if topic in written_by_old:
            yield Problem(
                field, topic, "is a topic of the old query, which continues: set another topic"
            )


def _written_topics(plan: JoinPlan) -> dict[str, str]:
    """The topics to which a query writes records, by field."""
    letters = {} if plan.dead_letter is None else {"dead_letter.topic": plan.dead_letter.topic}
    return {"output.topic": plan.output.topic, **letters}


def _problems(old: JoinPlan, new: JoinPlan) -> Iterator[Problem]:
    if old.checkpoint == new.checkpoint:
        yield Problem(
            "checkpoint", new.checkpoint, "is the folder of the old query: set another folder"
        )
    if (old.pick, new.pick) != (None, None):
        yield Problem(
            "join.pick",
            None,
            "is not possible in a change: which results the old query has written is not known. "
            "Start with empty state: `streamjoin run SPEC --new-query`",
        )
    yield from tables.problems(old, new)
    for side in SIDES:
        if side in {*old.deduplicated, *new.deduplicated}:
            yield Problem(
                f"{side}.deduplicate",
                None,
                "is not possible in a change: the ids that the old query has stored are not "
                "carried over, so duplicates of earlier rows would be joined. Start with empty "
                "state: `streamjoin run SPEC --new-query`",
            )
        if any(plan.side(side).topics.pattern is not None for plan in (old, new)):
            yield Problem(
                f"{side}.topic_pattern",
                None,
                "is not possible in a change: list the topics in `topics`",
            )
        if old.side(side).topics != new.side(side).topics:
            yield Problem(
                f"{side}.topic",
                new.side(side).topic,
                f"must stay {old.side(side).topic}: the same offset in another topic is another "
                "record. Start a join of other topics with another `name`",
            )
        if new.side(side).retention is None and new.table_side is None:
            yield Problem(
                "join",
                None,
                "has no bound on event time, so the new query would have to read every record "
                "again: set join.match_window or join.window, or start with `streamjoin run SPEC "
                "--new-query`",
            )
    yield from _problems_of_unmatched_rows(old, new)


def _problems_of_unmatched_rows(old: JoinPlan, new: JoinPlan) -> Iterator[Problem]:
    for side in _outer_in_both(old, new):
        if _emits_at_once(old, side) and _emission(old, side) != _emission(new, side):
            yield Problem(
                "join.condition",
                None,
                f"the old query has emitted some {side} rows as unmatched at once, because of "
                f"their key or a condition on {side} alone. With another key, condition or "
                "on_null_key the new query cannot detect these rows: keep these fields, or start "
                "with `streamjoin run SPEC --new-query`",
            )
        before, after = (_event_times(plan.side(side)) for plan in (old, new))
        for field, (meaning, shown) in before.items():
            changed, written = after[field]
            if meaning != changed:
                yield Problem(
                    f"{side}.{field}",
                    written,
                    f"must stay {shown}: it decides which unmatched {side} rows the old query has "
                    "emitted. By another event time these rows may not have expired, and would be "
                    "emitted again",
                )


def _event_times(side: SidePlan) -> dict[str, tuple[str, str]]:
    """Settings that decide the event time of a row, by field: their meaning and their text."""
    return {
        "event_time": (side.event_time_definition, side.event_time_text),
        "time_zone": (side.time_zone, side.time_zone),
    }


def _outer_in_both(old: JoinPlan, new: JoinPlan) -> list[Side]:
    """The sides whose unmatched rows both queries emit once they have expired."""
    if new.table_side is not None and not new.is_final:
        return []
    return [side for side in old.join_type.outer_sides if side in new.join_type.outer_sides]


def _emits_at_once(plan: JoinPlan, side: Side) -> bool:
    """Whether unmatched rows of `side` can be emitted before they expire."""
    has_null_keys = plan.null_keys_pass and not all(plan.null_safe)
    return has_null_keys or bool(plan.one_sided_condition(side))


def _emission(plan: JoinPlan, side: Side) -> tuple[object, ...]:
    """Settings that decide whether an unmatched row of `side` is emitted at once."""
    keys = tuple(part.canonical for part in plan.side(side).key)
    return keys, plan.null_safe, plan.null_keys_pass, tuple(plan.one_sided_condition(side))


def _expired(old: JoinPlan, new: JoinPlan) -> Iterator[Expired]:
    for side in _outer_in_both(old, new):
        if _is_kept_longer(old, new, side):
            if old.window is not None:
                window = (milliseconds(old.window.size), milliseconds(old.window.offset))
                yield Expired(side, window_ms=window, window_time_zone=old.window.time_zone)
            else:
                yield Expired(side, kept_ms=_kept_ms(old, side))


def _is_kept_longer(old: JoinPlan, new: JoinPlan, side: Side) -> bool:
    """Whether a row can have expired with the old spec and not with the new one."""
    if old.window is not None or new.window is not None:
        return old.window != new.window
    return _kept_ms(old, side) < _kept_ms(new, side)


def _kept_ms(plan: JoinPlan, side: Side) -> int:
    """Milliseconds from the event time of a row of `side` to its expiry. Needs a match window."""
    retention = plan.side(side).retention
    assert retention is not None, "an outer side has a bound"
    return milliseconds(retention) - (1 if plan.event_time_in_key else 0)


def _effects(old: JoinPlan, new: JoinPlan, changed: tuple[Change, ...]) -> Iterator[str]:
    fields = {change.field for change in changed}
    results = {name for name in fields if name not in _WITHOUT_EFFECT}
    read = [field for field, value in _reading(old).items() if _reading(new)[field] != value]
    if new.table_side is not None:
        is_changed = bool(results or read or _output(old) != _output(new))
        yield from tables.effects(new, is_changed=is_changed)
        return
    if "engine" in fields:
        yield (
            "Rows after the cut are late by the rule of the new engine: real_time compares them "
            "with the watermark of their interval, micro_batch with that of the previous batch."
        )
    if not results and not read and _output(old) == _output(new):
        yield (
            "All other results are the same as without the change."
            if "engine" in fields
            else "The results are the same as without the change."
        )
        return
    if any(name.startswith((*_PAIRS, "right.key")) for name in fields):
        yield (
            "A pair with at least one record after the cut follows the new spec, even if its other "
            "record is before the cut. A pair of two records before the cut is not emitted again. "
            "If only the new spec gives such a pair, it is kept back."
        )
    yield from _effects_of_other_pairs(old, new, *_pairs_that_differ(old, new, {*fields, *read}))
    if "join.type" in fields:
        yield (
            f"Records after the cut, and records before the cut that have not expired, are joined "
            f"as {new.join_type} instead of {old.join_type}."
        )
        yield from _effects_of_unmatched_rows(old, new)
    for side in _outer_in_both(old, new):
        if _is_kept_longer(old, new, side):
            yield (
                f"{side.capitalize()} rows that the old query has emitted as unmatched are not "
                "emitted as unmatched again. If such a row matches a record after the cut, the "
                "pair is emitted."
            )
    for side in SIDES:
        if f"{side}.watermark_delay" in fields:
            yield (
                f"The watermark stays at its value of the cut until the event times allow it to "
                f"advance with the new {side}.watermark_delay of "
                f"{duration_text(new.side(side).watermark_delay)}."
            )
    for field in read:
        yield (
            f"The new {field} applies to records before the cut that have not expired: records "
            "that only the new spec accepts can match records after the cut."
        )
    if _output(old) != _output(new):
        yield "Results after the cut follow the new output. Results before the cut do not change."


def _pairs_that_differ(old: JoinPlan, new: JoinPlan, fields: set[str]) -> tuple[bool, bool]:
    """Whether two records can match only by the old spec, and only by the new one.

    `fields`: changed settings.
    """
    deciding = {field for field in fields if field.startswith(_MATCHING)}
    is_bound = all(field.startswith("join.match_window.") for field in deciding)
    if not is_bound or old.match_window is None or new.match_window is None:
        return bool(deciding), bool(deciding)
    bounds = list(zip(_bounds(old.match_window), _bounds(new.match_window), strict=True))
    return any(a > b for a, b in bounds), any(a < b for a, b in bounds)


def _bounds(window: MatchWindow) -> list[timedelta]:
    return [timedelta.max if b is None else b for b in (window.before, window.after)]


def _effects_of_other_pairs(
    old: JoinPlan, new: JoinPlan, only_old: bool, only_new: bool
) -> Iterator[str]:
    """`only_old`, `only_new`: as `_pairs_that_differ` returns them."""
    shown = () if old.join_type.anti_side else old.join_type.shown_sides
    for side in new.join_type.outer_sides:
        rows = f"{side.capitalize()} rows"
        if only_old and side in shown:
            yield (
                f"{rows} that only the old spec matches with a record before the cut are emitted "
                "as unmatched if they expire after the cut, although the old query has emitted "
                "them as matched."
            )
        if only_new:
            yield (
                f"{rows} that only the new spec matches with a record before the cut are not "
                "emitted as unmatched."
            )
        if side in old.join_type.outer_sides and _is_kept_longer(new, old, side):
            yield (
                f"Unmatched {side} rows that have expired at the cut by the new spec, and not by "
                "the old one, are not emitted."
            )
    semi = new.join_type.semi_side
    if semi is not None and only_old and semi == old.join_type.semi_side:
        yield (
            f"{semi.capitalize()} rows that only the old spec matches with a record before the cut "
            "are emitted again, with the same id, if a record after the cut matches them."
        )
    if semi is not None and only_new:
        yield (
            f"{semi.capitalize()} rows that only the new spec matches with a record before the cut "
            "are not emitted."
        )


def _effects_of_unmatched_rows(old: JoinPlan, new: JoinPlan) -> Iterator[str]:
    before, after = old.join_type.outer_sides, new.join_type.outer_sides
    for side in SIDES:
        if side in after and side not in before:
            yield f"Unmatched {side} rows before the cut are emitted if they expire after the cut."
        if side in before and side not in after:
            yield f"Unmatched {side} rows that had not expired at the cut are not emitted any more."


def _reading(plan: JoinPlan) -> dict[str, object]:
    """Settings outside of the fingerprint that decide which records enter the join, by field."""
    sides = {side: plan.side(side) for side in SIDES}
    return {
        **{f"{side}.filter": _sql(of_side.filter) for side, of_side in sides.items()},
        **{f"{side}.columns": _failing_columns(of_side) for side, of_side in sides.items()},
        **{f"{side}.min_event_time": of_side.min_event_time for side, of_side in sides.items()},
        **{
            f"{side}.max_event_time_ahead": of_side.max_event_time_ahead
            for side, of_side in sides.items()
        },
        "on_null_key": plan.null_keys_pass,
    }


def _texts(plan: JoinPlan) -> dict[str, str]:
    """Settings outside of the fingerprint, by field, as written."""
    output = plan.output
    written = {
        **{f"{side}.filter": plan.side(side).filter for side in SIDES},
        **{f"output.columns.{name}": part for name, part in output.columns.items()},
        **{f"output.headers.{name}": part for name, part in output.headers.items()},
        "output.key": output.key,
        "output.partition_by": output.partition_by,
        "output.filter": output.filter,
    }
    texts = {field: each.text for field, each in written.items() if each is not None}
    return texts | {
        "output.topic": output.topic,
        "output.delivery": output.delivery.value,
        **{f"{side}.min_event_time": str(plan.side(side).min_event_time) for side in SIDES},
    }


def _failing_columns(side: SidePlan) -> set[str]:
    """Definitions of the computed columns that can fail: then the record is a bad record."""
    return {column.value.canonical for column in side.computed if column.value.can_fail}


def _output(plan: JoinPlan) -> tuple[object, ...]:
    """Settings of the output that change results. The delivery does not."""
    output = plan.output
    shown = [
        (name, part.canonical)
        for parts in (output.columns, output.headers)
        for name, part in parts.items()
    ]
    optional = [_sql(part) for part in (output.key, output.partition_by, output.filter)]
    schemas = [
        None if schema is None else (schema.format, schema.text)
        for schema in (output.schema, output.key_schema)
    ]
    return (
        (output.topic, output.key_format, output.has_event_time, len(output.columns)),
        *(shown, optional, schemas),
    )


def _sql(expression: Expression | None) -> str | None:
    return None if expression is None else expression.canonical
