"""Settings that a checkpoint freezes: Spark ignores their change silently or returns wrong results.

Pure. checkpoint.py stores the fingerprint next to the checkpoint and refuses a start with another.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta

from job.errors import FrozenSpecError
from job.formats.schemas import PARTS
from job.plan import join_operator, tuning
from job.plan.plan import JoinPlan
from job.plan.side_plan import SidePlan
from job.spec.durations import duration_text
from job.spec.engine import Engine
from job.spec.expressions import columns_of
from job.spec.join_conditions import JoinOperator
from job.spec.output import OutputTimestamp
from job.spec.sides import SIDES, Side
from job.spec.source_topics import SourceTopics
from job.spec.table import KAFKA_TIMESTAMP
from job.spec.value_format import Format
from job.spec.value_schema import ValueSchema
from job.sql.questions import Columns, SqlError, SqlQuestions
from job.sql.time_zones import UTC

_ENGINE, _OPERATOR = "engine", "join.operator"
STATE_FORMAT = "state_format"
"""Of the processor. It follows from other settings, by a rule that may change with a version."""
_NONE = "none"
_WITHIN = " within "
_DELETE = ", delete "
_TIME_ZONES = {f"{side}.time_zone" for side in SIDES}
_SQL_FIELDS = {
    "join.condition",
    *(
        f"{side}.{field}"
        for side in SIDES
        for field in ("key", "deduplicate", "event_time", "state_columns", "table")
    ),
}


@dataclass(frozen=True)
class Change:
    """A frozen setting with a different value in the spec."""

    field: str
    frozen: str
    wanted: str


def fingerprint(plan: JoinPlan) -> dict[str, str]:
    """Frozen settings by the name of their field, as shown to users."""
    window = plan.match_window
    settings = {
        "join.type": plan.join_type.value,
        _OPERATOR: plan.operator.value,
        "join.null_safe": _each(plan.null_safe),
        "join.match_window.before": _text(window.before if window else None),
        "join.match_window.after": _text(window.after if window else None),
        **({} if plan.pick is None else {"join.pick": plan.pick.value}),
        "join.window": "none" if plan.window is None else str(plan.window),
        "join.condition": plan.condition.canonical if plan.condition else _NONE,
    }
    for side in (plan.side(name) for name in SIDES):
        settings |= {
            _topic_field(side.side): side.topic,
            f"{side.side}.key": ", ".join(part.canonical for part in side.key),
        }
        if plan.uses_event_times or side.event_time_text != KAFKA_TIMESTAMP:
            settings[f"{side.side}.event_time"] = side.event_time_definition
        if plan.uses_event_times:
            settings[f"{side.side}.watermark_delay"] = duration_text(side.watermark_delay)
        if plan.stream_waits or plan.table_side in {None, side.side}:
            settings[f"{side.side}.state_columns"] = ", ".join(
                column if definition is None else f"{column} = {definition}"
                for column, definition in _state_columns(side)
            )
        settings |= {f"{side.side}.{name}": text for name, text in _values(side).items()}
        if side.table is not None:
            settings[f"{side.side}.table"] = side.table.frozen
        if side.time_zone != UTC:
            settings[f"{side.side}.time_zone"] = side.time_zone
        if side.deduplication is not None:
            settings[f"{side.side}.deduplicate"] = side.deduplication.frozen
    settings |= {part.schema_id: str(each.schema.id) for part, each in plan.readers.items()}
    settings["state_partitions"] = str(plan.state_partitions)
    if plan.output.has_event_time and plan.window is not None:
        # Spark stores the event time of a row only if the output uses it.
        settings["output.timestamp"] = OutputTimestamp.EVENT_TIME.value
    if plan.real_time is not None:
        settings[_ENGINE] = Engine.REAL_TIME.value
    if plan.operator is JoinOperator.STREAMJOIN:
        settings[STATE_FORMAT] = join_operator.state_format(plan)
    return settings | {name.split(".")[-1]: value for name, value in _formats().items()}


def _values(side: SidePlan) -> dict[str, str]:
    """Settings by which the bytes of a record become values, where they are not the default. A
    registered schema has its own setting."""
    settings = {}
    if side.format not in {Format.JSON, Format.AVRO, Format.PROTOBUF}:
        settings["format"] = side.format.value
    if side.format is Format.CSV:
        settings["csv"] = str(side.csv)
    if side.envelope is not None:
        settings["envelope"] = side.envelope.value
    if side.has_typed_keys and not side.keys_have_registry:
        settings["key_format"] = f"{side.key_format.value} {side.record_key.type}"
    return settings


def _state_columns(side: SidePlan) -> list[tuple[str, str | None]]:
    """Name and type of each column of the state, and the definition of a computed one."""
    defined = {each.name: each.value.canonical for each in side.computed}
    return [
        (
            f"{each.name} {each.type}",
            None if each.name == side.event_time else defined.get(each.name),
        )
        for each in side.kept_columns
    ]


def _pattern(columns: Sequence[tuple[str, str | None]]) -> re.Pattern[str]:
    """Of the text of these columns, with a group for each definition."""
    parts = (
        re.escape(column) if definition is None else f"{re.escape(column)} = (.+)"
        for column, definition in columns
    )
    return re.compile(", ".join(parts), re.DOTALL)


def incompatible_changes(plan: JoinPlan, frozen: Mapping[str, str]) -> list[Change]:
    """The changes in `plan` that a checkpoint with the settings `frozen` refuses.

    The number of state partitions is that of the checkpoint, unless it is configured. Whether a
    different schema is compatible is checked at the start (formats/pinning.py).
    """
    ids = [part.schema_id for part in PARTS if plan.has_registry(part)]
    kept = {name: frozen[name] for name in ids if name in frozen}
    recorded = recorded_plan(plan, frozen).with_topics(recorded_topics(plan, frozen))
    return changes(frozen, {**fingerprint(recorded), **kept})


def check_not_frozen(checkpoint: str, differences: Sequence[Change]) -> None:
    """Raises FrozenSpecError if there are `differences`. `checkpoint`: location."""
    if not differences:
        return
    lines = [
        f"  {change.field}: frozen as {change.frozen}, the spec has {change.wanted}"
        for change in differences
    ]
    first = differences[0]
    if first.field == STATE_FORMAT:
        raise FrozenSpecError(
            f"the checkpoint {checkpoint} has the state of another version ({STATE_FORMAT}: "
            f"{first.frozen}, and this version has {first.wanted}). Continue "
            "with `streamjoin change OLD_SPEC NEW_SPEC`: NEW_SPEC is the same spec with another "
            "`checkpoint`, and its query reads the records in state again. If the change is "
            "refused because an interval was interrupted, end it with the old version first"
        )
    # Those that change/comparison.py refuses.
    lasting = {
        "join.pick",
        *(f"{side}.deduplicate" for side in SIDES),
        *map(_topic_field, SIDES),
    }
    is_changeable = not any(change.field in lasting for change in differences)
    continuing = "run `streamjoin change OLD_SPEC NEW_SPEC` to continue with the new ones; or "
    raise FrozenSpecError(
        f"the checkpoint {checkpoint} was started with other settings:\n"
        + "\n".join(lines)
        + f"\nRestore the old values to continue with it; or {continuing * is_changeable}set "
        "another folder in `checkpoint` and start with --new-query (rows now in state are then not "
        "joined, and results may be delivered again)"
    )


def with_spelling_of(
    plan: JoinPlan, frozen: Mapping[str, str], sql: SqlQuestions
) -> dict[str, str]:
    """`frozen` with the expressions as `plan` spells them, where both texts mean the same. Another
    version may have recorded another text for an expression."""
    wanted = fingerprint(plan)
    sides = {side: plan.side(side) for side in SIDES}
    columns = columns_of(
        {
            side: ValueSchema((*of_side.schema.columns, *of_side.record_columns))
            for side, of_side in sides.items()
        }
    )
    same = {
        field
        for field in _SQL_FIELDS & frozen.keys() & wanted.keys()
        if frozen[field] != wanted[field]
        and _mean_the_same(
            _split(field, frozen[field], plan), _split(field, wanted[field], plan), columns, sql
        )
    }
    return {field: wanted[field] if field in same else text for field, text in frozen.items()}


def _split(field: str, text: str, plan: JoinPlan) -> tuple[Sequence[str], str]:
    """The lists of expressions in a setting, and the rest of its text."""
    side, _, name = field.partition(".")
    if name == "deduplicate":
        expressions, _, rest = text.rpartition(_WITHIN)
        return [expressions], rest
    if name == "table":
        rest, _, expressions = text.partition(_DELETE)
        return [expressions], rest
    if name == "state_columns":
        columns = _state_columns(plan.left if side == "left" else plan.right)
        found = _pattern(columns).fullmatch(text)
        return (found.groups(), "") if found else ([], text)
    return [text], ""


def _mean_the_same(
    frozen: tuple[Sequence[str], str],
    wanted: tuple[Sequence[str], str],
    columns: Columns,
    sql: SqlQuestions,
) -> bool:
    if len(frozen[0]) != len(wanted[0]) or frozen[1] != wanted[1]:
        return False
    try:
        return all(
            sql.analysis(f"struct({one})", columns).canonical
            == sql.analysis(f"struct({other})", columns).canonical
            for one, other in zip(frozen[0], wanted[0], strict=True)
        )
    except SqlError:  # not of the columns of this spec
        return False


def recorded_plan(plan: JoinPlan, frozen: Mapping[str, str]) -> JoinPlan:
    """The plan with the number of state partitions of a checkpoint with the settings `frozen`, and
    with its operator, unless the spec chooses one."""
    partitions = int(frozen.get("state_partitions", plan.state_partitions))
    plan = replace(plan, state_partitions=partitions)
    if plan.chooses_operator or plan.real_time is not None or _ENGINE in frozen:
        return plan
    return replace(plan, operator=JoinOperator(frozen.get(_OPERATOR, JoinOperator.SPARK)))


def recorded_topics(plan: JoinPlan, frozen: Mapping[str, str] | None) -> dict[Side, SourceTopics]:
    """The topics of each side. A side with a pattern has the topics of the checkpoint."""
    recorded = {side: frozen_topics(frozen or {}, side) for side in SIDES}
    return {
        side: topics
        if topics.pattern is None or (known := recorded[side]) is None
        else topics.recorded(known.names)
        for side, topics in plan.topics.items()
    }


def frozen_topics(frozen: Mapping[str, str], side: Side) -> SourceTopics | None:
    """The topics of a side in a checkpoint. None: no checkpoint exists."""
    text = frozen.get(_topic_field(side))
    return None if text is None else SourceTopics.parsed(text)


def with_added_topics(frozen: Mapping[str, str], plan: JoinPlan) -> dict[str, str]:
    """`frozen` with the topics that a start of `plan` has added for its patterns."""
    added: dict[str, str] = {}
    for side, topics in plan.topics.items():
        known = frozen_topics(frozen, side)
        if topics.pattern is not None and known is not None:
            begins_with_them = topics.names[: len(known.names)] == known.names
            added |= {_topic_field(side): str(topics)} if begins_with_them else {}
    return {**frozen, **added}


def _topic_field(side: Side) -> str:
    return f"{side}.topic"


def changes(frozen: Mapping[str, str], wanted: Mapping[str, str]) -> list[Change]:
    """The state format is among them only if nothing else differs, from which it follows."""
    frozen, wanted = _completed(frozen), _completed(wanted)
    differing = [field for field in {**frozen, **wanted} if frozen.get(field) != wanted.get(field)]
    if differing != [STATE_FORMAT]:
        differing = [field for field in differing if field != STATE_FORMAT]
    return [
        Change(field, frozen.get(field, _NONE), wanted.get(field, _NONE)) for field in differing
    ]


def _completed(settings: Mapping[str, str]) -> dict[str, str]:
    """With the fields that a fingerprint leaves out if they have these values."""
    is_real_time = settings.get(_ENGINE) == Engine.REAL_TIME
    operator = JoinOperator.STREAMJOIN if is_real_time else JoinOperator.SPARK
    left_out = {_ENGINE: Engine.MICRO_BATCH.value, _OPERATOR: operator.value}
    return {**dict.fromkeys(_TIME_ZONES, UTC), **left_out, **settings}


def _formats() -> dict[str, str]:
    return {name.removesuffix(".enabled"): value for name, value in tuning.FROZEN_CONF.items()}


def _each(values: tuple[bool, ...]) -> str:
    """One value if all are the same, as a boolean in the spec."""
    shown = values[:1] if len(set(values)) == 1 else values
    return ", ".join(str(value).lower() for value in shown)


def _text(value: timedelta | None) -> str:
    return "none" if value is None else duration_text(value)
