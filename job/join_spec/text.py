"""From the text of a spec to plain values, and from what pydantic says of them to Problems."""

import difflib
import re
from collections.abc import Callable, Mapping
from typing import Any

import yaml
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from job.errors import Problem, SpecError

_VARIABLE = re.compile(r"\$(\$)?\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")
_VALUE_CHARS_MAX = 80


class _UniqueKeyLoader(yaml.SafeLoader):
    """YAML where a key written twice is an error: PyYAML would keep the last one in silence."""


def _unique_mapping(loader: _UniqueKeyLoader, node: yaml.MappingNode) -> dict[Any, Any]:
    seen: set[Any] = set()
    for key_node, _ in node.value:
        key = loader.construct_object(key_node, deep=True)
        if key in seen:
            raise yaml.constructor.ConstructorError(
                None, None, f"{key!r} is written twice", key_node.start_mark
            )
        seen.add(key)
    return loader.construct_mapping(node, deep=True)


# YAML 1.1 makes dates of what looks like one; a spec means the text.
_UniqueKeyLoader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if not tag.endswith(":timestamp")]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_UniqueKeyLoader.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _unique_mapping)


def parsed(text: str) -> Any:
    """The YAML in `text`; SpecError with line and column where it is none."""
    try:
        document = yaml.load(text, Loader=_UniqueKeyLoader)  # noqa: S506 - derived from SafeLoader
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        where = f"line {mark.line + 1}, column {mark.column + 1}" if mark else "the file"
        raise SpecError([Problem(where, None, f"is not YAML: {error.problem}")]) from error
    except yaml.YAMLError as error:
        raise SpecError([Problem("the file", None, f"is not YAML: {error}")]) from error
    if not isinstance(document, dict):
        raise SpecError([Problem("the file", None, "holds no fields: begin with `name:`")])
    return document


def filled(document: Any, environment: Mapping[str, str]) -> Any:
    """`document` with `${VAR}` and `${VAR:-default}` replaced; `$${VAR}` stands for itself.

    Replaced after YAML was parsed: a variable's value can never add fields.
    """
    problems: list[Problem] = []

    def fill(value: Any, path: str) -> Any:
        if isinstance(value, dict):
            return {key: fill(item, f"{path}.{key}".lstrip(".")) for key, item in value.items()}
        if isinstance(value, list):
            return [fill(item, f"{path}[{index}]") for index, item in enumerate(value)]
        if isinstance(value, str):
            return _VARIABLE.sub(lambda match: replace(match, path), value)
        return value

    def replace(match: re.Match[str], path: str) -> str:
        escaped, variable, default = match.groups()
        if escaped:
            return match[0][1:]
        if variable in environment:
            return environment[variable]
        if default is None:
            problems.append(
                Problem(
                    path,
                    match[0],
                    f"the environment has no {variable}: set it, or write ${{{variable}:-default}}",
                )
            )
        return default or ""

    result = fill(document, "")
    if problems:
        raise SpecError(problems)
    return result


def problems_of(error: ValidationError, model: type[BaseModel]) -> list[Problem]:
    """What pydantic found, in the user's terms: dotted field, value as written, remedy."""
    return [_problem(detail, model) for detail in error.errors(include_url=False)]


def _problem(detail: ErrorDetails, model: type[BaseModel]) -> Problem:
    path = [part for part in detail["loc"] if part != "function-after"]
    message = _MESSAGES.get(detail["type"], _plain_message)(detail)
    if detail["type"] == "extra_forbidden":
        message += _suggestion(path, model)
    is_silent = detail["type"] == "missing" or _may_be_secret(path, message)
    value = None if is_silent else _shown(detail["input"])
    return Problem(_dotted(path) or "the file", value, message)


def _may_be_secret(path: list[int | str], message: str) -> bool:
    """A misspelt or mistyped field of these sections can hold a password, a URL can too."""
    is_secret = path[:2] == ["kafka", "security"] or path[:1] == ["schema_registry"]
    return is_secret or "password" in message


def _dotted(path: list[int | str]) -> str:
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
    return text.lstrip(".")


def _shown(value: Any) -> str | None:
    if isinstance(value, dict | BaseModel):
        return None  # the fields in it are reported one by one
    text = str(value)
    return text if len(text) <= _VALUE_CHARS_MAX else text[: _VALUE_CHARS_MAX - 1] + "…"


def _plain_message(detail: ErrorDetails) -> str:
    return detail["msg"].removeprefix("Value error, ")


_MESSAGES: dict[str, Callable[[ErrorDetails], str]] = {
    "missing": lambda _: "is required",
    "extra_forbidden": lambda _: "is no field of the spec",
    "enum": lambda detail: f"must be one of {detail['ctx']['expected']}",
    "literal_error": lambda detail: f"must be one of {detail['ctx']['expected']}",
    "string_pattern_mismatch": lambda _: (
        "may hold lower-case letters, digits and _, and begins with a letter"
    ),
    "list_type": lambda _: "must be a list, e.g. [ad_id]",
    "bool_parsing": lambda _: "must be true or false",
    "string_too_short": lambda _: "must not be empty",
    "greater_than": lambda detail: f"must be greater than {detail['ctx']['gt']:g}",
    "finite_number": lambda _: "must be a finite number",
    "float_type": lambda _: "must be a number",
    "float_parsing": lambda _: "must be a number",
}


def _suggestion(path: list[int | str], model: type[BaseModel]) -> str:
    """The field that was probably meant, from the models themselves."""
    for part in path[:-1]:
        if isinstance(part, int):  # an entry of a list: its model is the list's
            continue
        inner = _model_in(_fields(model)[str(part)].annotation)
        if inner is None:
            return ""
        model = inner
    known = list(_fields(model))
    close = difflib.get_close_matches(str(path[-1]), known, n=1)
    return f"; did you mean {close[0]}?" if close else f"; known: {', '.join(known)}"


def _fields(model: type[BaseModel]) -> dict[str, Any]:
    return {field.alias or name: field for name, field in model.model_fields.items()}


def _model_in(annotation: Any) -> type[BaseModel] | None:
    """The pydantic model in `X` or `X | None`."""
    for candidate in (annotation, *getattr(annotation, "__args__", ())):
        if isinstance(candidate, type) and issubclass(candidate, BaseModel):
            return candidate
    return None
