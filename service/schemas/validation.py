"""Validation of a spec: POST /v1/validate."""

from typing import Self

from pydantic import ConfigDict

from job.protocol.answers import ValidationAnswer
from service.schemas.view import View


class SpecDocument(View):
    """A spec in a JSON body."""

    model_config = ConfigDict(extra="forbid")

    spec: str
    """The spec as YAML."""


class SpecProblemView(View):
    field: str
    """Dotted path in the YAML."""
    message: str
    """What is wrong, and the fix."""


class CheckpointChangeView(View):
    field: str
    """Setting that the checkpoint has frozen."""
    frozen: str
    """Its value in the checkpoint."""
    wanted: str
    """Its value in the spec."""


class ValidationView(View):
    problems: list[SpecProblemView]
    """All problems of the spec; empty if the spec is valid."""
    plan: str | None
    """The plan as `streamjoin plan` prints it; null if there are problems."""
    checkpoint_changes: list[CheckpointChangeView] | None
    """Changes that the job's checkpoint does not accept; null if not compared."""

    @classmethod
    def of(cls, answer: ValidationAnswer) -> Self:
        return cls.model_validate(answer.model_dump())
