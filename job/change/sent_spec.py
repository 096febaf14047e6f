"""The changed spec that a caller of the HTTP API sends: what it may contain, and its plan.

The caller may send commands, and may have no access to the machine of the job. So the spec may not
read other variables, connect to other servers or write other folders than the running spec.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from job.errors import Problem, SpecError
from job.plan.plan import JoinPlan
from job.plan.planner import join_plan
from job.plan.sql_problems import with_sql_problems
from job.spec.document import parsed
from job.spec.spec import JoinSpec, spec_from_document, spec_from_yaml
from job.spec.variables import fields_with_variables, filled, variables_hidden
from job.sql.questions import SqlQuestions

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


@dataclass(frozen=True)
class PlanRequest:
    text: str
    running: WrittenSpec
    environment: Mapping[str, str]
    """The variables of the running spec. The new one may contain no others."""
    state_partitions: int
    is_file: bool = False
    """Whether `text` is the file of the job. Its author has access to the machine, so it may
    contain what a client may not send."""


def plan_sent_spec(request: PlanRequest, sql: SqlQuestions) -> PlannedSpec:
    """Raises SpecError with the problems of `read_sent_spec` and `join_plan`, RegistryError or
    SecurityError if the schema registry does not answer."""
    environment = request.environment
    with_all_variables = request.text if request.is_file else request.running.text
    with variables_hidden(with_all_variables, environment):
        try:
            written = _read(request)
        except SpecError as error:
            raise with_sql_problems(error, request.text, environment, sql) from error
        readers = {}
        if written.spec.schema_registry is not None:
            # A join of JSON loads no packages of other formats.
            from job.formats.pinning import reader_schemas

            readers = reader_schemas(written.spec, sql)
        partitions = request.state_partitions
        plan = join_plan(written.spec, sql, state_partitions=partitions, readers=readers)
    return PlannedSpec(written, plan)


def _read(request: PlanRequest) -> WrittenSpec:
    if request.is_file:
        return WrittenSpec(request.text, spec_from_yaml(request.text, request.environment))
    return read_sent_spec(request.text, request.running, request.environment)


def read_sent_spec(text: str, old: WrittenSpec, environment: Mapping[str, str]) -> WrittenSpec:
    """Raises SpecError with each field that is invalid, or that a caller may not set.

    Each variable of the new spec is in the same field of the old one. So `variables_hidden` with
    the text of the old spec hides the variables of both.
    """
    document = parsed(text)
    problems = list(_problems_of_variables(document, parsed(old.text)))
    if problems:
        raise SpecError(problems)
    with variables_hidden(old.text, environment):
        new = spec_from_document(filled(document, environment))
        problems = [*_problems_of_servers(new, old.spec), *_problems_of_folder(new, old.spec)]
        if problems:
            raise SpecError(problems)
    return WrittenSpec(text, new)


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
