"""The changed spec that a caller of the HTTP API sends, and what it may contain. Pure.

The caller may send commands, and may have no access to the machine of the job. So the spec may not
read other variables, connect to other servers or write other folders than the running spec.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from job.errors import Problem, SpecError
from job.join_spec.document import parsed
from job.join_spec.spec import JoinSpec, spec_from_yaml
from job.join_spec.variables import fields_with_variables
from job.plan.plan import JoinPlan

PlanOf = Callable[[JoinSpec], JoinPlan]
"""The plan of a spec, with the settings of this machine and the schemas of its registry."""

_FOLDER_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*")


@dataclass(frozen=True)
class WrittenSpec:
    text: str
    """YAML. `${VAR}` is not replaced."""
    spec: JoinSpec


@dataclass(frozen=True)
class PlannedSpec:
    written: WrittenSpec
    plan: JoinPlan


def sent_spec(text: str, old: WrittenSpec, environment: Mapping[str, str]) -> WrittenSpec:
    """Raises SpecError with each field that is invalid, or that a caller may not set."""
    problems = list(_problems_of_variables(parsed(text), parsed(old.text)))
    if problems:
        raise SpecError(problems)
    new = WrittenSpec(text, spec_from_yaml(text, environment))
    problems = [*_problems_of_servers(new.spec, old.spec), *_problems_of_folder(new.spec, old.spec)]
    if problems:
        raise SpecError(problems)
    return new


def _problems_of_variables(new: Any, old: Any) -> Iterator[Problem]:
    """A variable may be a password. In another field it could be written to a topic."""
    in_old = fields_with_variables(old)
    for field, text in fields_with_variables(new).items():
        if in_old.get(field) != text:
            yield Problem(
                field,
                text,
                "must not contain a variable unless the running spec has the same text in this "
                "field: write the value, or change the join with `streamjoin change`",
            )


def _problems_of_servers(new: JoinSpec, old: JoinSpec) -> Iterator[Problem]:
    for field in ("kafka", "schema_registry"):
        if getattr(new, field) != getattr(old, field):
            yield Problem(
                field,
                None,
                "must stay as in the running spec: change servers and security in the spec file, "
                "and restart the job",
            )


def _problems_of_folder(new: JoinSpec, old: JoinSpec) -> Iterator[Problem]:
    *parent, _ = old.checkpoint.rstrip("/").rpartition("/")
    *new_parent, name = new.checkpoint.rstrip("/").rpartition("/")
    if new_parent != parent or not _FOLDER_NAME.fullmatch(name):
        yield Problem(
            "checkpoint",
            new.checkpoint,
            f"must be a folder next to the running checkpoint: {''.join(parent)} and a name of "
            "letters, digits, `.`, `_` and `-`",
        )
