"""All choices of a proposed spec."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta

import yaml

from job.proposal.columns import Table
from job.proposal.evidence import Evidence
from job.proposal.keys import KeyPair, Strength
from job.proposal.times import EventTime
from job.spec.join_conditions import JoinType
from job.spec.sides import Side
from job.sql.types import TIMESTAMP, SqlType, struct_of

_DELAY_MIN = timedelta(seconds=10)
_PLAIN = re.compile(r"[A-Za-z_][\w .,()<>-]*")
_MICROS = 1_000_000

# Durations that people write, in seconds.
_STEPS = (0, 1, 10, 60, 300, 600, 900, 1_800, 3_600, 7_200, 10_800, 21_600, 43_200, 86_400)
_DAY = 86_400
_MARGIN = 1.5
"""Another sample may contain more than this one."""


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
    """Pairs of expressions, left and right."""
    join_type: JoinType
    output_topic: str
    quoted: Mapping[str, str]
    """Names of columns and fields, as SQL."""
    evidence: Evidence | None = None
    """Of the keys and event times, as the job reads the samples. None: not read yet."""
    disorder_us: Mapping[Side, int] = field(default_factory=dict)
    """Largest distance of a row behind an earlier row of its partition."""
    strength: Strength | None = None
    """Of the evidence for the keys. None: options or inputs name the keys."""
    other_keys: Sequence[KeyPair] = ()
    other_times: Mapping[Side, Sequence[EventTime]] = field(default_factory=dict)
    rates: Mapping[Side, float | None] = field(default_factory=dict)
    """Records per second of each sample. None: the sample is too short for one."""
    compacted: frozenset[Side] = frozenset()
    """Sides whose topic is compacted."""

    def columns(self, side: Side) -> dict[str, SqlType]:
        """Columns of the schema. The event time is a TIMESTAMP, also if it is written as text or as
        a number."""
        column, *fields = self.times[side].path or (None,)
        found = self.tables[side].columns
        return {
            name: _with_time(kind, fields) if name == column else kind
            for name, kind in found.items()
        }

    def watermark_delay(self, side: Side) -> timedelta:
        """A round duration above the disorder of the sample."""
        return longer(self.disorder_us.get(side, 0), _DELAY_MIN)


def _with_time(kind: SqlType, fields: Sequence[str]) -> SqlType:
    """The type with TIMESTAMP as the type of the field, of which `fields` has the names."""
    if not fields:
        return TIMESTAMP
    inner = {**dict(kind.fields), fields[0]: _with_time(kind.inside(fields[0]), fields[1:])}
    return struct_of(inner.items())


def scalar(text: str) -> str:
    """The text as YAML, in quotes where it would be read as something else."""
    if _PLAIN.fullmatch(text) and not text.endswith(" ") and yaml.safe_load(f"- {text}") == [text]:
        return text
    return json.dumps(text, ensure_ascii=False)


def longer(micros: int, at_least: timedelta = timedelta(0)) -> timedelta:
    """A round duration above `micros`, with a margin."""
    seconds = max(at_least.total_seconds(), micros * _MARGIN / _MICROS)
    days = -(-seconds // _DAY)
    return timedelta(seconds=next((step for step in _STEPS if step >= seconds), days * _DAY))
