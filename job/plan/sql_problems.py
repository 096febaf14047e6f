"""Problems of the SQL in a spec with other problems, so that a client sees all of them at once."""

import re
from collections.abc import Iterator, Mapping, Sequence, Set
from copy import deepcopy
from typing import Any

from job.errors import Problem, SetupError, SpecError
from job.plan.planner import join_plan
from job.spec.document import parsed
from job.spec.sides import SIDES
from job.spec.spec import JoinSpec, spec_from_document, spec_from_yaml
from job.spec.variables import filled, variables_hidden
from job.sql.questions import SqlQuestions

# Valid values of required fields on which no expression depends.
_VALID: Mapping[str, object] = {
    "name": "x",
    "kafka": {"bootstrap_servers": "localhost:9092"},
    "kafka.bootstrap_servers": "localhost:9092",
    **{f"{side}.topic": side for side in SIDES},
    **{f"{side}.watermark_delay": "1 second" for side in SIDES},
    **{f"{side}.deduplicate.within": "1 second" for side in SIDES},
    **{f"{side}.table.version": "latest" for side in SIDES},
    "join.type": "inner",
    "output.topic": "output",
    "dead_letter.topic": "dead_letters",
    "checkpoint": "/checkpoint",
    "on_bad_record": "drop",
}
_MODELS = (*SIDES, "join", "output")
_SQL = re.compile(
    r"(left|right)\.(schema|key_schema|time_zone|columns\..+|event_time|filter|table\.delete"
    r"|(key|deduplicate\.by)\[\d+\])|join\.(condition|window\.time_zone)"
    r"|output\.((columns|headers)\..+|filter|key|partition_by)"
)
_INVALID = ")"
"""In place of an invalid expression or schema. What depends on it is then not checked."""
_OF_SIDE = (
    *("schema", "envelope", "columns", "key_schema", "key", "event_time", "time_zone", "filter"),
    *("table", "deduplicate"),
)
_OF_OUTPUT = ("columns", "headers", "key", "partition_by", "filter")
_OVER_OUTPUT_COLUMNS = re.compile(r"output\.(headers\..+|key|partition_by|filter)")


def read_spec(text: str, environment: Mapping[str, str], sql: SqlQuestions) -> JoinSpec:
    """As `spec_from_yaml`. The SpecError of an invalid structure has also the problems of the
    SQL."""
    try:
        return spec_from_yaml(text, environment)
    except SpecError as error:
        with variables_hidden(text, environment):
            raise with_sql_problems(error, text, environment, sql) from error


def with_sql_problems(
    error: SpecError, text: str, environment: Mapping[str, str], sql: SqlQuestions
) -> SpecError:
    """`error`, which the structure of the spec `text` has raised, and the problems of its SQL."""
    try:
        more = list(_sql_problems(error.problems, text, environment, sql))
    except (SetupError, ModuleNotFoundError):  # nothing reads SQL here
        more = []
    return SpecError([*error.problems, *more])


def _sql_problems(
    found: Sequence[Problem], text: str, environment: Mapping[str, str], sql: SqlQuestions
) -> Iterator[Problem]:
    """Of the spec with other values in place of the invalid ones. None of SQL that depends on
    these."""
    fields = {problem.field for problem in found}
    try:
        document = parsed(text)
        for field in fields:
            document = _repaired(document, field)
        # A value with a variable that the spec may not use is replaced by now.
        join_plan(_spec(filled(document, environment)), sql, state_partitions=1)
    except SpecError as error:
        for problem in error.problems:
            is_written = problem.value not in {None, _INVALID}
            if is_written and _SQL.fullmatch(problem.field) and not _follows(problem.field, fields):
                yield problem


def _follows(field: str, invalid: Set[str]) -> bool:
    return field in invalid or (
        "output.columns" in invalid and _OVER_OUTPUT_COLUMNS.fullmatch(field) is not None
    )


def _spec(document: Mapping[str, Any]) -> JoinSpec:
    """Of the repaired document, or of one without settings that may contradict each other."""
    try:
        return spec_from_document(document)
    except SpecError:
        return spec_from_document(_with_little_but_sql(document))


def _with_little_but_sql(document: Mapping[str, Any]) -> dict[str, Any]:
    sides: dict[str, dict[str, Any]] = {side: _side(side, document.get(side)) for side in SIDES}
    longest = max(len(side["key"]) for side in sides.values())
    for side in sides.values():
        side["key"] = [*side["key"], *[_INVALID] * (longest - len(side["key"]))]
    has_table = any("table" in side for side in sides.values())
    return {
        **sides,
        "output": {"topic": "output", **_kept(document.get("output"), _OF_OUTPUT)},
        "name": "x",
        "kafka": _VALID["kafka"],
        "join": {
            "type": "inner",
            "unbounded_state": not has_table,
            **_kept(document.get("join"), ["condition"]),
        },
        "checkpoint": "/checkpoint",
        "on_bad_record": "drop",
    }


def _side(side: str, written: Any) -> dict[str, Any]:
    kept = _kept(written, _OF_SIDE)
    if "table" in kept:
        kept.pop("deduplicate", None)
    if not isinstance(kept.get("key"), list):
        kept["key"] = [_INVALID]
    return {
        "topic": side,
        "schema": _INVALID,
        "event_time": _INVALID,
        "watermark_delay": "1 second",
        **({"key_format": "json"} if "key_schema" in kept else {}),
        **kept,
    }


def _kept(written: Any, names: Sequence[str]) -> dict[str, Any]:
    return {name: written[name] for name in names if name in written} if written else {}


def _repaired(document: Any, field: str) -> Any:
    """The document with another value in the field, or without the field."""
    repaired = deepcopy(document)
    target, name = _place(repaired, field)
    if isinstance(target, list):
        target[int(name)] = _INVALID
    elif isinstance(target, dict) and not (
        field in _MODELS and isinstance(target.get(name), dict)  # its fields contradict each other
    ):
        target.pop(name, None)
        if field in _VALID:
            target[name] = deepcopy(_VALID[field])
        elif field in _MODELS:
            target[name] = {}
        elif _SQL.fullmatch(field) and name != "time_zone":
            target[name] = _INVALID
    return repaired


def _place(value: Any, path: str) -> tuple[Any, str]:
    """The mapping or list that contains the field, and its name or index there. The name of a
    header may contain dots."""
    if isinstance(value, list) and (index := re.match(r"\[(\d+)\]\.?", path)):
        rest = path[index.end() :]
        return _place(value[int(index[1])], rest) if rest else (value, index[1])
    if isinstance(value, dict) and path not in value:
        for name in value:
            if path.startswith((f"{name}.", f"{name}[")):
                return _place(value[name], path.removeprefix(name).removeprefix("."))
    return value, path
