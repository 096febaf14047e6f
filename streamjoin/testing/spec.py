"""The spec that the containers run: broker and checkpoint are replaced by those of the test."""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import yaml

from job.errors import Problem, SpecError
from job.plan.output_planner import commit_topic_of
from job.spec.document import parsed
from job.spec.side_spec import SideSpec
from job.spec.sides import SIDES, Side
from job.spec.spec import JoinSpec, spec_from_document
from job.spec.value_format import Format
from job.spec.variables import filled

CHECKPOINT = "/var/lib/streamjoin/checkpoint"
STATE_PARTITIONS = 1


@dataclass(frozen=True)
class SpecAtTest:
    spec: JoinSpec
    waits_for_watermark: bool
    """Whether each advance of event time starts a batch. False for unbounded state."""
    text: str
    """YAML, its variables filled."""

    @classmethod
    def of(cls, path: Path, servers: str, environment: Mapping[str, str] = os.environ) -> Self:
        """Read `path` and replace brokers, their security and the checkpoint.

        Raises SpecError for an invalid file. The container of the job checks its SQL.
        """
        document: dict[str, Any] = parsed(path.read_text(encoding="utf-8"))
        document["kafka"] = {"bootstrap_servers": servers}
        document["checkpoint"] = CHECKPOINT
        document = filled(document, environment)
        spec = spec_from_document(document)
        _refuse_other_formats(spec)
        _refuse_topic_patterns(spec)
        # Variables are filled already: escape every remaining `${`.
        text = re.sub(r"\$(?=\{)", "$$", yaml.safe_dump(document, sort_keys=False))
        return cls(
            spec=spec,
            waits_for_watermark=not spec.join.unbounded_state,
            text=text,
        )

    @property
    def topics(self) -> list[str]:
        """Topics that must exist before the start."""
        spec = self.spec
        inputs = (name for side in SIDES for name in self.side(side).source_topics.names)
        return [*inputs, spec.output.topic, *([spec.dead_letter.topic] if spec.dead_letter else [])]

    @property
    def follows_clock(self) -> bool:
        """Whether results may be emitted without new input (`idle_after`)."""
        return any(self.side(side).idle_after for side in SIDES)

    def topic(self, side: Side) -> str:
        """Topic to which tests write; with several topics the first one."""
        return self.side(side).source_topics.names[0]

    def side(self, side: Side) -> SideSpec:
        return self.spec.left if side == "left" else self.spec.right

    @property
    def commit_topic(self) -> str:
        return commit_topic_of(self.spec)


def _refuse_topic_patterns(spec: JoinSpec) -> None:
    patterns = {"left": spec.left.topic_pattern, "right": spec.right.topic_pattern}
    problems = [
        Problem(
            f"{side}.topic_pattern",
            pattern,
            "names no topic that the containers could create: test with `topic` or `topics`",
        )
        for side, pattern in patterns.items()
        if pattern is not None
    ]
    if problems:
        raise SpecError(problems)


def _refuse_other_formats(spec: JoinSpec) -> None:
    formats = {
        "left.format": spec.left.format,
        "right.format": spec.right.format,
        "left.key_format": spec.left.key_format.with_registry or Format.JSON,
        "right.key_format": spec.right.key_format.with_registry or Format.JSON,
        "output.format": spec.output.format,
        "output.key_format": spec.output.key_format.with_registry or Format.JSON,
    }
    reasons = {
        name: "needs a schema registry, and these containers have none"
        if value_format.has_registry
        else "does not read the rows of these tests, which are sent as JSON"
        for name, value_format in formats.items()
        if value_format is not Format.JSON
    }
    problems = [
        Problem(name, formats[name].value, f"{reason}: test with json")
        for name, reason in reasons.items()
    ]
    if problems:
        raise SpecError(problems)
