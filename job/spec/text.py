"""Converts validation errors of pydantic to Problems: dotted field, input value, remedy. Pure."""

import difflib
import re
from collections.abc import Callable
from typing import Any, get_args

from pydantic import BaseModel
from pydantic_core import ErrorDetails

from job.errors import Problem

_VALUE_CHARS_MAX = 80
# Parts of pydantic's paths that are no fields: validators, keys of mappings, forms of a field.
_NO_FIELDS = {"function-after", "[key]", "[duration]", "[mapping]"}
_PROBLEMS_MAX = 150
# Fields that may contain a password, also below a misspelt name.
_MAY_CONTAIN_SECRETS = {"kafka", "schema_registry", "checkpoint"}
# A URL with a login, or a PEM key.
_LOOKS_SECRET = re.compile(r"//[^/\s]*@|-----BEGIN")


def problems_of(details: list[ErrorDetails], model: type[BaseModel]) -> list[Problem]:
    """The first 100 problems, and one with the number of the others."""
    problems = [_problem(detail, model) for detail in details[:_PROBLEMS_MAX]]
    if len(details) > _PROBLEMS_MAX:
        message = f"has {len(details) - _PROBLEMS_MAX:,} more problems, which are not listed"
        problems.append(Problem("the file", None, message))
    return problems


def _problem(detail: ErrorDetails, model: type[BaseModel]) -> Problem:
    path = [part for part in detail["loc"] if part not in _NO_FIELDS]
    message = _MESSAGES.get(detail["type"], _plain_message)(detail)
    value = _shown(detail["input"])
    if detail["type"] == "extra_forbidden":
        message += _suggestion(path, model)
        value = None  # it may be the password of a misspelt field
    if detail["type"] == "missing" or (path and path[0] in _MAY_CONTAIN_SECRETS):
        value = None
    return Problem(_dotted(path) or "the file", value, message)


def _dotted(path: list[int | str]) -> str:
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
    return text.lstrip(".")


def _shown(value: Any) -> str | None:
    """Text and numbers, shortened. None: a nested field, or text that looks like a secret."""
    if not isinstance(value, str | int | float):
        return None
    text = str(value)
    if _LOOKS_SECRET.search(text):
        return None
    return text if len(text) <= _VALUE_CHARS_MAX else text[: _VALUE_CHARS_MAX - 1] + "…"


def _plain_message(detail: ErrorDetails) -> str:
    return detail["msg"].removeprefix("Value error, ")


def _not_text(detail: ErrorDetails) -> str:
    if isinstance(detail["input"], bool):
        return (
            "is a boolean and must be text: YAML 1.1 reads on, off, yes, no, true and false as "
            'booleans; put it in quotes, e.g. "off"'
        )
    return "must be text"


_MESSAGES: dict[str, Callable[[ErrorDetails], str]] = {
    "string_type": _not_text,
    "model_type": lambda _: "must be a mapping of fields",
    "dict_type": lambda _: "must be a mapping of fields",
    "missing": lambda _: "is required",
    "extra_forbidden": lambda _: "unknown field",
    "enum": lambda detail: f"must be one of {detail['ctx']['expected']}",
    "literal_error": lambda detail: f"must be one of {detail['ctx']['expected']}",
    "string_pattern_mismatch": lambda _: (
        "must begin with a letter and contain only lower-case letters, digits and _"
    ),
    "list_type": lambda _: "must be a list, e.g. [ad_id]",
    "bool_parsing": lambda _: "must be true or false",
    "string_too_short": lambda _: "must not be empty",
    "string_too_long": lambda detail: (
        f"has {len(detail['input']):,} characters and must have at most "
        f"{detail['ctx']['max_length']:,}: shorten it"
    ),
    "greater_than": lambda detail: f"must be greater than {detail['ctx']['gt']:g}",
    "finite_number": lambda _: "must be a finite number",
    "float_type": lambda _: "must be a number",
    "float_parsing": lambda _: "must be a number",
}


def _suggestion(path: list[int | str], model: type[BaseModel]) -> str:
    """The most similar field name of the model, or all names if none is similar."""
    for part in path[:-1]:
        if isinstance(part, int):  # an index of a list; the annotation has the type of its items
            continue
        inner = model_in(fields_of(model)[part].annotation) if part in fields_of(model) else None
        if inner is None:
            return ""
        model = inner
    known = list(fields_of(model))
    close = difflib.get_close_matches(str(path[-1])[:_VALUE_CHARS_MAX], known, n=1)
    return f"; did you mean {close[0]}?" if close else f"; known: {', '.join(known)}"


def fields_of(model: type[BaseModel]) -> dict[str, Any]:
    return {field.alias or name: field for name, field in model.model_fields.items()}


def model_in(annotation: Any) -> type[BaseModel] | None:
    """The pydantic model in an annotation such as `X`, `X | None` or `list[X]`."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    inner = (model_in(part) for part in get_args(annotation))
    return next((model for model in inner if model is not None), None)
