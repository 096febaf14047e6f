"""The YAML of a proposed spec, with comments on what each proposal rests on."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

import yaml

from job.proposal.choices import RECORD_TIMESTAMP, EventTime, distances, longer
from job.proposal.columns import Table
from job.spec.durations import duration_text
from job.spec.join_conditions import JoinType
from job.spec.sides import SIDES, Side
from job.sql.types import TIMESTAMP, SqlType

_DELAY_MIN = timedelta(seconds=10)
_WINDOW_WITHOUT_PAIRS = timedelta(hours=1)
_PLAIN = re.compile(r"[A-Za-z_][\w .,()<>-]*")
_MICROS = 1_000_000


@dataclass(frozen=True)
class Proposal:
    """All choices of a spec."""

    name: str
    bootstrap_servers: str
    security: str | None
    """Text of the YAML block kafka.security."""
    registry: str | None
    """Text of the YAML block schema_registry."""
    topics: Mapping[Side, str]
    tables: Mapping[Side, Table]
    times: Mapping[Side, EventTime]
    keys: Sequence[tuple[str, str]]
    """Pairs of columns, left and right."""
    join_type: JoinType
    output_topic: str
    quoted: Mapping[str, str]
    """Names of the columns, as SQL."""

    def columns(self, side: Side) -> dict[str, SqlType]:
        """Columns of the schema. The event time is a TIMESTAMP, also if it is written as text or as
        a number."""
        chosen = self.times[side].column
        found = self.tables[side].columns
        return {name: TIMESTAMP if name == chosen else kind for name, kind in found.items()}


def spec_text(proposal: Proposal) -> str:
    lines = [
        "# Proposed by `streamjoin init` from the newest records of both topics: check each line.",
        "# `streamjoin plan` explains this join; docs/spec.md describes all fields.",
        f"name: {scalar(proposal.name)}",
        "kafka:",
        f"  bootstrap_servers: {scalar(proposal.bootstrap_servers)}",
        *_block("  security:", proposal.security),
        *_block("schema_registry:", proposal.registry),
    ]
    for side in SIDES:
        lines += [f"{side}:", *(f"  {line}" for line in _side_lines(proposal, side))]
    lines += [
        "join:",
        f"  type: {proposal.join_type.value}   # or {_other_types(proposal.join_type)}",
        *(f"  {line}" for line in _window_lines(proposal)),
        "output:",
        f"  topic: {scalar(proposal.output_topic)}",
        *(f"  {line}" for line in _output_lines(proposal)),
        f"checkpoint: {scalar(f'./data/{proposal.name}')}   # in production on HDFS or S3",
        "dead_letter:   # bad records, each with its reason",
        f"  topic: {scalar(f'{proposal.output_topic}.dead')}",
    ]
    return "\n".join(lines) + "\n"


def scalar(text: str) -> str:
    """The text as YAML, in quotes where it would be read as something else."""
    if _PLAIN.fullmatch(text) and not text.endswith(" ") and yaml.safe_load(f"- {text}") == [text]:
        return text
    return json.dumps(text, ensure_ascii=False)


def _block(name: str, text: str | None) -> list[str]:
    """The text, indented below a name with its own indentation."""
    if text is None:
        return []
    indent = " " * (len(name) - len(name.lstrip()) + 2)
    return [name, *(f"{indent}{line}" for line in text.rstrip().splitlines())]


def _side_lines(proposal: Proposal, side: Side) -> list[str]:
    table, times = proposal.tables[side], proposal.times[side]
    key = ", ".join(scalar(proposal.quoted[pair[SIDES.index(side)]]) for pair in proposal.keys)
    delay = duration_text(longer(times.disorder_us, _DELAY_MIN))
    disorder = f"{times.disorder_us / _MICROS:.3f}".rstrip("0").rstrip(".")
    reason = f"rows of the sample are up to {disorder} s out of order"
    return [
        f"topic: {scalar(proposal.topics[side])}",
        *_schema_lines(proposal, side),
        *_left_out_lines(table),
        f"key: [{key}]",
        f"event_time: {scalar(times.column)}{_event_time_comment(times)}",
        f"watermark_delay: {delay}   # {reason}",
    ]


def _schema_lines(proposal: Proposal, side: Side) -> list[str]:
    """The columns. Those of a registered schema are left out where the registry has the same."""
    table, columns = proposal.tables[side], proposal.columns(side)
    ddl = ", ".join(f"{proposal.quoted[name]} {kind}" for name, kind in columns.items())
    schema = f"schema: {scalar(ddl)}"
    if table.reader is None:
        return [schema]
    reader = table.reader
    kind = f"format: {reader.format.value}   # subject {reader.subject}, version {reader.version}"
    return [kind] if columns == table.columns and not table.left_out else [kind, schema]


def _left_out_lines(table: Table) -> list[str]:
    """A comment on members of the values that cannot be columns."""
    if not table.left_out:
        return []
    names = ", ".join(json.dumps(name) for name in table.left_out)
    reason = "the name" if table.reader is None else "the name or the type"
    return [f"# not in the schema, because no column can have {reason}: {names}"]


def _event_time_comment(times: EventTime) -> str:
    if times.column != RECORD_TIMESTAMP:
        return ""
    return "   # Kafka's timestamp of the record: no column of all values is a time"


def _other_types(chosen: JoinType) -> str:
    return ", ".join(each.value for each in JoinType if each is not chosen)


def _window_lines(proposal: Proposal) -> list[str]:
    found = distances(
        proposal.tables["left"],
        proposal.tables["right"],
        proposal.keys,
        (proposal.times["left"], proposal.times["right"]),
    )
    rule = "left - before <= right <= left + after"
    if not found:
        hour = duration_text(_WINDOW_WITHOUT_PAIRS)
        return [
            "# A guess: the samples have no two rows of the same key.",
            f"match_window: {{before: {hour}, after: {hour}}}   # {rule}",
        ]
    before, after = (longer(max(0, micros)) for micros in (-min(found), max(found)))
    if before == after == timedelta(0):
        after = longer(1)
    first, last = min(found) / _MICROS, max(found) / _MICROS
    window = f"{{before: {duration_text(before)}, after: {duration_text(after)}}}"
    return [
        f"# In {len(found)} pairs of the samples, right - left is {first:.1f} s to {last:.1f} s.",
        f"match_window: {window}   # {rule}",
    ]


def _output_lines(proposal: Proposal) -> list[str]:
    columns = _output_columns(proposal)
    return [
        f"key: {scalar(_output_key(proposal))}",
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


def _output_key(proposal: Proposal) -> str:
    """The first key column: of the side that has a row in every result, or of either."""
    left, right = (
        f"{side}.{proposal.quoted[name]}"
        for side, name in zip(SIDES, proposal.keys[0], strict=True)
    )
    match proposal.join_type:
        case JoinType.RIGHT_OUTER | JoinType.RIGHT_SEMI | JoinType.RIGHT_ANTI:
            return right
        case JoinType.FULL_OUTER:
            return f"coalesce({left}, {right})"
        case _:
            return left
