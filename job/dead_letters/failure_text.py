"""The message of a query that fails at its first bad record (`on_bad_record: fail`). Pure."""

from string import Formatter

from job.dead_letters.headers import NULL_KEY, VALUE_TOO_LARGE
from job.plan.record_checks import EXPRESSION_FAILED
from job.spec.sides import Side
from job.sql.literals import quoted

BAD_RECORD = (
    "{side} record {topic}/{partition}/{offset} cannot be read ({reason}): {message}. To continue, "
    "set {also}`on_bad_record: drop` or a dead_letter topic, then start again"
)
UNWRITTEN_RESULT = (
    "the result of {id} cannot be written ({reason}): {message}. To continue, {remedy}, or set "
    "`on_bad_record: drop`, then start again"
)
REMEDIES = {
    VALUE_TOO_LARGE: "increase the topic's max.message.bytes",
    EXPRESSION_FAILED: "change the expression",
    NULL_KEY: "change output.key",
}
"""Remedy for a result that is not written, by the reason."""


def without_key(topic: str) -> str:
    """Why a result with a null key is not written."""
    return f"output.key is null, and topic {topic} is compacted: it accepts no record without a key"


def also(side: Side) -> str:
    """SQL of the setting in BAD_RECORD that fits the `dead_reason` of a record."""
    setting = quoted(f"`{side}.on_tombstone: drop`, ")
    return f"CASE WHEN dead_reason = 'tombstone' THEN {setting} ELSE '' END"


def as_sql(template: str, **values: str) -> str:
    """SQL of the text of a template. `values`: SQL of each field, not null."""
    parts: list[str] = []
    for text, field, _, _ in Formatter().parse(template):
        parts += [quoted(text)] if text else []
        parts += [values[field]] if field else []
    return f"concat({', '.join(parts)})"
