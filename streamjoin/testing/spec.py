"""A spec as the containers run it: its broker and its checkpoint are the test's."""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import yaml

from job.errors import Problem, SpecError
from job.join_spec.document import parsed
from job.join_spec.expressions import SIDES, Side
from job.join_spec.model import JoinSpec, spec_from_document
from job.join_spec.variables import filled
from job.plan.model import JoinPlan
from job.plan.planner import join_plan

CHECKPOINT = "/var/lib/streamjoin/checkpoint"
STATE_PARTITIONS = 1


@dataclass(frozen=True)
class SpecAtTest:
    plan: JoinPlan
    waits_for_watermark: bool
    """Whether each step of event time brings a batch: a state without end has none."""
    text: str
    """YAML, its variables filled."""

    @classmethod
    def of(cls, path: Path, servers: str, environment: Mapping[str, str] = os.environ) -> Self:
        """Brokers, their security and the checkpoint are the test's; the rest is the file's.

        SpecError names what is wrong with the file.
        """
        document: dict[str, Any] = parsed(path.read_text())
        document["kafka"] = {"bootstrap_servers": servers}
        document["checkpoint"] = CHECKPOINT
        document = filled(document, environment)
        spec = spec_from_document(document)
        _refuse_other_formats(spec)
        # `$` that a variable has brought, or that was written for itself, is no variable here.
        text = re.sub(r"\$(?=\{)", "$$", yaml.safe_dump(document, sort_keys=False))
        return cls(
            plan=join_plan(spec, state_partitions=STATE_PARTITIONS),
            waits_for_watermark=not spec.join.unbounded_state,
            text=text,
        )

    @property
    def topics(self) -> list[str]:
        """Those that have to be there before the start."""
        names = [self.plan.left.topic, self.plan.right.topic, self.plan.output.topic]
        return [*names, *([self.plan.dead_letter.topic] if self.plan.dead_letter else [])]

    @property
    def follows_clock(self) -> bool:
        """Whether rows may come out without one that goes in."""
        return any(self.plan.side(side).idle_after for side in SIDES)

    def topic(self, side: Side) -> str:
        return self.plan.side(side).topic


def _refuse_other_formats(spec: JoinSpec) -> None:
    sides = {"left": spec.left, "right": spec.right}
    problems = [
        Problem(
            f"{name}.format",
            side.format.value,
            "needs a schema registry, which these containers have not: test with `format: json`",
        )
        for name, side in sides.items()
        if side.format.has_registry
    ]
    if problems:
        raise SpecError(problems)
