"""The parts of a result as Spark SQL over joined rows. Only text."""

from job.plan import result_checks
from job.plan.plan import JoinPlan
from job.plan.timestamp_sql import ISO_FORMAT
from job.spec.value_format import KeyFormat
from job.sql.literals import quoted

# Nulls are written: an unmatched row has null in the fields of the other side.
_JSON_OPTIONS = f"map('timestampFormat', {quoted(ISO_FORMAT)}, 'ignoreNullFields', 'false')"


def json_value(plan: JoinPlan) -> str:
    members = ", ".join(
        f"{quoted(name)}, {result_checks.column(plan, name)}" for name in plan.output.columns
    )
    return f"to_json(named_struct({members}), {_JSON_OPTIONS})"


def key(plan: JoinPlan) -> str:
    """The key as text; as JSON if the spec has key_format json."""
    if plan.output.key_format is KeyFormat.JSON:
        return json_key(plan)
    return f"cast({result_checks.key(plan)} AS STRING)"


def json_key(plan: JoinPlan) -> str:
    # to_json takes no plain values: the key becomes the only element of an array, and its brackets
    # are removed.
    value = result_checks.key(plan)
    listed = f"to_json(array({value}), {_JSON_OPTIONS})"
    return f"CASE WHEN {value} IS NOT NULL THEN substr({listed}, 2, length({listed}) - 2) END"


def header(plan: JoinPlan, name: str) -> str:
    return f"cast({result_checks.header(plan, name)} AS STRING)"


def event_time_ms(plan: JoinPlan) -> str:
    """The greatest event time of the rows whose columns a result can contain; with a table, that of
    the stream's row."""
    shown = [side for side in plan.join_type.shown_sides if side in plan.streams]
    times = [f"unix_millis(`{plan.side(side).event_time_column}`)" for side in shown]
    return f"greatest({', '.join(times)})" if len(times) > 1 else times[0]
