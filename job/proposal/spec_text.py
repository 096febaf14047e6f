"""The YAML of a proposed spec, with comments on what each proposal rests on."""

import json
from collections.abc import Sequence
from datetime import timedelta

from job.proposal.evidence import signed_text
from job.proposal.proposal import Proposal, longer, scalar
from job.proposal.side_text import side_lines, uses_typed_key
from job.spec.durations import duration_text
from job.spec.join_conditions import JoinType
from job.spec.sides import SIDES, Side
from job.sql.questions import SqlQuestions

_WINDOW_WITHOUT_PAIRS = timedelta(hours=1)
_OTHERS_MAX = 5
"""Candidates in a comment."""


def spec_text(proposal: Proposal, sql: SqlQuestions) -> str:
    lines = [
        "# Proposed by `streamjoin init` from the newest records of both topics: check each line.",
        "# `streamjoin plan` explains this join; `streamjoin schema` describes all fields.",
        f"name: {scalar(proposal.name)}",
        "kafka:",
        f"  bootstrap_servers: {scalar(proposal.bootstrap_servers)}",
        *_block("  security:", proposal.security),
        *_block("schema_registry:", proposal.registry if _uses_registry(proposal, sql) else None),
    ]
    lines += _key_comment(proposal)
    for side in SIDES:
        lines += [f"{side}:", *(f"  {line}" for line in side_lines(proposal, side, sql))]
    lines += [
        "join:",
        f"  type: {proposal.join_type.value}   # or {_other_types(proposal.join_type)}",
        *(f"  {line}" for line in _window_lines(proposal)),
        "output:",
        f"  topic: {scalar(proposal.output_topic)}",
        *(f"  {line}" for line in _output_lines(proposal, sql)),
        f"checkpoint: {scalar(f'./data/{proposal.name}')}   # in production on HDFS or S3",
        "dead_letter:   # bad records, each with its reason",
        f"  topic: {scalar(f'{proposal.output_topic}.dead')}",
        "on_late_row: dead_letter   # or drop: late rows are only counted",
    ]
    return "\n".join(lines) + "\n"


def _uses_registry(proposal: Proposal, sql: SqlQuestions) -> bool:
    return any(
        table.reader is not None
        or (table.keys.reader is not None and uses_typed_key(proposal, side, sql))
        for side, table in proposal.tables.items()
    )


def _block(name: str, text: str | None) -> list[str]:
    """The text, indented below a name with its own indentation."""
    if text is None:
        return []
    indent = " " * (len(name) - len(name.lstrip()) + 2)
    return [name, *(f"{indent}{line}" for line in text.rstrip().splitlines())]


def _key_comment(proposal: Proposal) -> list[str]:
    """What the key rests on, and the other candidates with their numbers."""
    lines = []
    if proposal.strength is not None:
        name = proposal.strength.name.lower()
        lines.append(f"# The evidence for the key is {name}: {proposal.evidence}.")
    others = [
        f"#   {_shown(pair.left)} = {_shown(pair.right)}: {pair.evidence}"
        for pair in proposal.other_keys[:_OTHERS_MAX]
    ]
    return [*lines, "# Other candidates for the key (left = right):", *others] if others else lines


def _shown(key: Sequence[str]) -> str:
    return json.dumps(", ".join(key), ensure_ascii=False)[1:-1]


def _other_types(chosen: JoinType) -> str:
    return ", ".join(each.value for each in JoinType if each is not chosen)


def _window_lines(proposal: Proposal) -> list[str]:
    found = [] if proposal.evidence is None else proposal.evidence.distances
    rule = "left - before <= right <= left + after"
    if not found:
        hour = duration_text(_WINDOW_WITHOUT_PAIRS)
        return [
            "# A guess: the samples have no two rows of the same key.",
            f"match_window: {{before: {hour}, after: {hour}}}   # {rule}",
            _price(proposal, _WINDOW_WITHOUT_PAIRS, _WINDOW_WITHOUT_PAIRS),
        ]
    before, after = (longer(max(0, micros)) for micros in (-found[0], found[-1]))
    if before == after == timedelta(0):
        after = longer(1)
    first, last = signed_text(found[0]), signed_text(found[-1])
    window = f"{{before: {duration_text(before)}, after: {duration_text(after)}}}"
    return [
        f"# In {len(found)} pairs of the samples, right - left is {first} to {last}.",
        *_age_lines(proposal),
        f"match_window: {window}   # {rule}",
        _price(proposal, before, after),
    ]


def _age_lines(proposal: Proposal) -> list[str]:
    """A comment on the distances of a table of newest values."""
    names = " and ".join(proposal.topics[side] for side in SIDES if side in proposal.compacted)
    text = (
        f"# As {names} is compacted, a distance is usually the age of the newest value of a key, "
        "which has no limit: set the window that the results need. No row matches outside of it."
    )
    return [text] if names else []


def _price(proposal: Proposal, before: timedelta, after: timedelta) -> str:
    """A comment on how long rows wait."""
    delay = max(proposal.watermark_delay(side) for side in SIDES)
    left, right = (duration_text(each + delay) for each in (after, before))
    return (
        f"# The job stores a left row for {left} of event time and a right row for {right}: this "
        "window and the longer watermark_delay. Then it emits the row, if it is to be emitted "
        "unmatched."
    )


def _output_lines(proposal: Proposal, sql: SqlQuestions) -> list[str]:
    columns = _output_columns(proposal)
    return [
        f"key: {scalar(_output_key(proposal, sql))}",
        "columns:",
        *(f"  {scalar(name)}: {scalar(expression)}" for name, expression in columns.items()),
    ]


def _output_columns(proposal: Proposal) -> dict[str, str]:
    """All columns; those of the right side whose name the left side has begin with `right_`."""
    columns: dict[str, str] = {}
    taken: set[str] = set()
    for side in proposal.join_type.shown_sides:
        for name in proposal.columns(side):
            shown = name
            while shown.casefold() in taken:
                shown = f"{side}_{shown}"
            taken.add(shown.casefold())
            columns[shown] = f"{side}.{proposal.quoted[name]}"
    return columns


def _output_key(proposal: Proposal, sql: SqlQuestions) -> str:
    """The first part of the key: of the side that has a row in every result, or of either."""
    left, right = (
        _with_side(expression, side, sql)
        for side, expression in zip(SIDES, proposal.keys[0], strict=True)
    )
    match proposal.join_type:
        case JoinType.RIGHT_OUTER | JoinType.RIGHT_SEMI | JoinType.RIGHT_ANTI:
            return right
        case JoinType.FULL_OUTER:
            return f"coalesce({left}, {right})"
        case _:
            return left


def _with_side(expression: str, side: Side, sql: SqlQuestions) -> str:
    """The expression with the side before each column."""
    text, names, _ = sql.names(expression)
    for name in reversed(names):
        if name.parts[0].casefold() != side:
            text = f"{text[: name.start]}{side}.{text[name.start :]}"
    return text
