"""Validates a spec that a client sends."""

from collections.abc import Iterable, Mapping

from pydantic import BaseModel, ConfigDict

from job.errors import Problem, SpecError
from job.plan.explain import explained
from job.plan.fingerprint import incompatible_changes, with_spelling_of
from job.plan.plan import JoinPlan
from job.plan.planner import join_plan
from job.plan.sql_problems import read_spec
from job.protocol.results import FieldProblem, FrozenChange, ValidationResult
from job.sql.questions import SqlQuestions


class ValidationRequest(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    spec: str
    """YAML. `${VAR}` is not replaced: the response would show the environment of this machine."""
    state_partitions: int
    """State partitions of the running query."""
    frozen: dict[str, str] | None
    """Settings frozen by the checkpoint, by field. None: the query has no checkpoint yet."""


def validated(request: ValidationRequest, sql: SqlQuestions) -> ValidationResult:
    """All problems of the spec, or its plan and its changes that the checkpoint refuses."""
    try:
        spec = read_spec(request.spec, {}, sql)
        plan = join_plan(spec, sql, state_partitions=request.state_partitions)
    except SpecError as error:
        return invalid(error.problems)
    return ValidationResult(
        problems=[],
        plan=explained(plan),
        checkpoint_changes=None if request.frozen is None else _changes(plan, request.frozen, sql),
    )


def invalid(problems: Iterable[Problem]) -> ValidationResult:
    fields = [FieldProblem(field=problem.field, message=problem.message) for problem in problems]
    return ValidationResult(problems=fields, plan=None, checkpoint_changes=None)


def _changes(plan: JoinPlan, frozen: Mapping[str, str], sql: SqlQuestions) -> list[FrozenChange]:
    return [
        FrozenChange(field=change.field, frozen=change.frozen, wanted=change.wanted)
        for change in incompatible_changes(plan, with_spelling_of(plan, frozen, sql))
    ]
