"""Lines of `streamjoin plan` about the checks of the topics that a start makes."""

from collections.abc import Iterator

from job.plan.plan import JoinPlan
from job.plan.tuning import DEAD_LETTER_BYTES_MIN, RESULT_BYTES_MIN
from job.spec.durations import duration_text
from job.spec.join_conditions import JoinType


def topic_check_lines(plan: JoinPlan) -> Iterator[tuple[str, str]]:
    """(name, text) of each line. An empty name continues the previous line."""
    yield ("all topics", "exist, and the job may read or write them")
    yield ("output topic", f"max.message.bytes is at least {RESULT_BYTES_MIN:,}")
    if plan.output.key is None:
        yield ("", "cleanup.policy is not compact: results have no key")
    elif _key_may_be_null(plan):
        yield ("", "If it is compacted, a result with a null key is not written: it is counted as")
        yield ("", f"null_key of side output. {plan.output.key.text} can be null")
    if plan.output.has_event_time:
        ahead = max(plan.side(side).max_event_time_ahead for side in plan.join_type.shown_sides)
        yield ("", "message.timestamp.type is CreateTime, message.timestamp.before.max.ms has no")
        yield ("", f"limit and message.timestamp.after.max.ms is at least {duration_text(ahead)}")
    if plan.dead_letter is not None:
        yield ("dead-letter topic", f"max.message.bytes is at least {DEAD_LETTER_BYTES_MIN:,},")
        yield ("", "and cleanup.policy is not compact")


def _key_may_be_null(plan: JoinPlan) -> bool:
    """Whether the key uses a column that can be null: all can, except the key of an inner join."""
    key = plan.output.key
    if key is None or plan.join_type is not JoinType.INNER or any(plan.null_safe):
        return key is not None and key.value is None
    never_null = {part.columns for side in (plan.left, plan.right) for part in side.key}
    return not (key.is_column and key.columns in never_null)
