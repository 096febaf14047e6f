"""Problems of the SQL in a spec with other problems, so that a client sees all of them at once."""

import re
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from typing import Any

from job.errors import Problem, SetupError, SpecError
from job.plan.planner import join_plan
from job.spec.document import parsed
from job.spec.sides import SIDES
from job.spec.spec import JoinSpec, spec_from_document
from job.spec.variables import filled
from job.sql.questions import SqlQuestions

# Valid values of required fields on which no expression depends.
_VALID: Mapping[str, object] = {
    "name": "x",
    "kafka.bootstrap_servers": "localhost:9092",
    **{f"{side}.topic": side for side in SIDES},
    **{f"{side}.watermark_delay": "1 second" for side in SIDES},
    "join.type": "inner",
    "output.topic": "output",
    "dead_letter.topic": "dead_letters",
    "checkpoint": "/checkpoint",
    "on_bad_record": "drop",
}
_SQL = re.compile(
    r"(left|right)\.(schema|event_time|filter|(key|deduplicate\.by)\[\d+\])|join\.condition"
    r"|output\.((columns|headers)\..+|filter|key|partition_by)"
)


def with_sql_problems(
    error: SpecError, text: str, environment: Mapping[str, str], sql: SqlQuestions
) -> SpecError:
    """`error`, which `spec_from_yaml` has raised for `text`, and the problems of its SQL."""
    try:
        more = list(_sql_problems(error.problems, text, environment, sql))
    except (SetupError, ModuleNotFoundError):  # nothing reads SQL here
        more = []
    return SpecError([*error.problems, *more])


def _sql_problems(
    found: Sequence[Problem], text: str, environment: Mapping[str, str], sql: SqlQuestions
) -> Iterator[Problem]:
    """Of the spec with valid values in place of the invalid ones. None, if SQL depends on these."""
    try:
        document = repaired = filled(parsed(text), environment)
        for problem in found:
            repaired = _repaired(repaired, problem.field)
        join_plan(_spec(document, repaired), sql, state_partitions=1)
    except SpecError as error:
        yield from (problem for problem in error.problems if _SQL.fullmatch(problem.field))


def _spec(document: Any, repaired: Any) -> JoinSpec:
    """Of the repaired document, or of one without settings that may contradict each other."""
    try:
        return spec_from_document(repaired)
    except SpecError:
        return spec_from_document(_with_little_but_sql(document, repaired))


def _with_little_but_sql(document: Any, repaired: Any) -> Any:
    if not isinstance(document, dict):
        return document
    join = document.get("join")
    condition = join.get("condition") if isinstance(join, dict) else None
    return {
        **{name: repaired[name] for name in (*SIDES, "output") if name in repaired},
        "name": "x",
        "kafka": {"bootstrap_servers": "localhost:9092"},
        "join": {"type": "inner", "unbounded_state": True, "condition": condition},
        "checkpoint": "/checkpoint",
        "on_bad_record": "drop",
    }


def _repaired(document: Any, field: str) -> Any:
    """The document with a valid value in the field, or without the field."""
    repaired = deepcopy(document)
    *path, name = field.split(".")
    target = repaired
    for part in path:
        target = target.get(part) if isinstance(target, dict) else None
    if isinstance(target, dict):
        target.pop(name, None)
        if field in _VALID:
            target[name] = _VALID[field]
    return repaired
