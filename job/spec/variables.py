"""Replaces `${VAR}` in a spec by values of the environment. Error messages never show a value:
any variable may be a password. Pure.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from job.errors import Problem, SpecError
from job.spec.document import parsed

_VARIABLE = re.compile(r"\$(\$)?\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")
_LIKE_A_VARIABLE = re.compile(r"\$\{\s*[A-Za-z_]")
# Shorter values are common words of messages, and not passwords.
_VALUE_CHARS_MIN = 4
# A message with this many consecutive characters of a variable's value is replaced.
_SHARED_CHARS_MAX = 6


def variables_of(text: str, environment: Mapping[str, str]) -> dict[str, str]:
    """The variables in `text` that `environment` contains."""
    names = {match[2] for match in _VARIABLE.finditer(text)}
    return {name: environment[name] for name in names if name in environment}


def filled(document: Any, environment: Mapping[str, str]) -> Any:
    """`document` with `${VAR}` and `${VAR:-default}` replaced; `$${VAR}` becomes the text `${VAR}`.

    The YAML is parsed before: a value cannot add fields. SpecError names each variable without a
    value and a default, and its field.
    """
    problems: list[Problem] = []

    def replace(match: re.Match[str], path: str) -> str:
        escaped, variable, _ = match.groups()
        if escaped:
            return match[0][1:]
        value = _value(match, environment)
        if value is None:
            problems.append(
                Problem(
                    path,
                    match[0],
                    f"environment variable {variable} is not set: set it, or write "
                    f"${{{variable}:-default}}",
                )
            )
        return value or ""

    def replaced(text: str, path: str) -> str:
        defaults = "".join(match[3] or "" for match in _VARIABLE.finditer(text))
        if _LIKE_A_VARIABLE.search(defaults) or _LIKE_A_VARIABLE.search(_VARIABLE.sub("", text)):
            problems.append(
                Problem(
                    path,
                    None,
                    "contains `${` that begins no variable: write ${NAME} or ${NAME:-default}. A "
                    "default contains no variable. $${NAME} is the text ${NAME}",
                )
            )
        return _VARIABLE.sub(lambda match: replace(match, path), text)

    result = _mapped(document, replaced)
    if problems:
        raise SpecError(problems)
    return result


@contextmanager
def variables_hidden(text: str, environment: Mapping[str, str]) -> Iterator[None]:
    """Replaces values of variables by `${VAR}` in every SpecError raised inside.

    `text`: YAML of the spec.
    """
    try:
        yield
    except SpecError as error:
        raise SpecError(_hidden(error.problems, text, environment)) from None


def fields_with_variables(document: Any) -> dict[str, str]:
    """The texts of `document` that contain `${VAR}`, by field."""
    fields: dict[str, str] = {}

    def note(text: str, path: str) -> str:
        if any(not match[1] for match in _VARIABLE.finditer(text)):
            fields[path] = text
        return text

    _mapped(document, note)
    return fields


def _hidden(problems: list[Problem], text: str, environment: Mapping[str, str]) -> list[Problem]:
    if "${" not in text:
        return problems
    try:
        fields = _filled_fields(parsed(text), environment)
    except SpecError:
        return problems  # no variable was replaced
    return [_without_values(problem, fields) for problem in problems]


@dataclass(frozen=True)
class _FilledField:
    path: str
    template: str
    """The text in the spec, without defaults: a default may also be a password."""
    values: Mapping[str, str]
    """Values in the filled text, by variable."""

    def concerns(self, field: str) -> bool:
        """Whether a problem of `field` may be caused by this field."""
        inner, outer = sorted((self.path, field), key=len, reverse=True)
        return field == "the file" or inner == outer or inner.startswith((f"{outer}.", f"{outer}["))


def _filled_fields(document: Any, environment: Mapping[str, str]) -> list[_FilledField]:
    fields = []

    def note(text: str, path: str) -> str:
        used = [match for match in _VARIABLE.finditer(text) if not match[1]]
        if used:
            values = {match[2]: _value(match, environment) or "" for match in used}
            template = _VARIABLE.sub(lambda m: m[0][1:] if m[1] else f"${{{m[2]}}}", text)
            fields.append(_FilledField(path, template, values))
        return text

    _mapped(document, note)
    return fields


def _without_values(problem: Problem, fields: list[_FilledField]) -> Problem:
    value, message = problem.value, problem.message
    for field in fields:
        for name, secret in field.values.items():
            message = _replaced(message, secret, f"${{{name}}}")
            value = None if value is None else _replaced(value, secret, f"${{{name}}}")
        if problem.value is not None and field.path == problem.field:
            value = field.template
        if field.concerns(problem.field):
            message = _without_parts(message, field.values)
    return Problem(problem.field, value, message)


def _without_parts(message: str, values: Mapping[str, str]) -> str:
    """`message` without the words of the values. If parts remain, only the variable is named."""
    for name, value in values.items():
        for part in sorted(re.split(r"[\s,;'\"()=]+", value), key=len, reverse=True):
            message = _replaced(message, part, f"${{{name}}}")
        if _share_text(message.replace(f"${{{name}}}", ""), value):
            return f"is not valid with the value of ${{{name}}}, which is not shown"
    return message


def _share_text(message: str, value: str) -> bool:
    size = _SHARED_CHARS_MAX
    return any(value[at : at + size] in message for at in range(len(value) - size + 1))


def _replaced(text: str, value: str, name: str) -> str:
    if len(value) < _VALUE_CHARS_MIN:
        return text
    for form in (value, repr(value)[1:-1]):
        text = text.replace(form, name)
    return text


def _value(match: re.Match[str], environment: Mapping[str, str]) -> str | None:
    """The variable's value or default. None: it has neither."""
    return environment.get(match[2], match[3])


def _mapped(value: Any, replace: Callable[[str, str], str], path: str = "") -> Any:
    """`value` with `replace(text, dotted path)` applied to each text in it."""
    if isinstance(value, dict):
        return {
            key: _mapped(item, replace, f"{path}.{key}".lstrip(".")) for key, item in value.items()
        }
    if isinstance(value, list):
        return [_mapped(item, replace, f"{path}[{index}]") for index, item in enumerate(value)]
    return replace(value, path) if isinstance(value, str) else value
