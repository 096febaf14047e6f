"""What is wrong with the SQL of a spec, from an answer of SqlWorker.java."""

import re
from collections.abc import Mapping
from string import Template
from typing import Any

_AGAIN = "a batch that runs again after a failure would have different results"
_FORMAT = (
    "the format $pattern is invalid: ${letters}see "
    "https://spark.apache.org/docs/latest/sql-ref-datetime-pattern.html"
)
_NOT_PARSED = "EFqQ"
"""Letters of a format that Spark writes, and does not parse."""
_NOT_KNOWN = "ABcenNpuwWY"
"""Letters of a format that Spark refuses."""
_LETTERS = (
    "Spark cannot parse {letters}. Leave it out of the format and cut its part off the text, e.g. "
    "with substr(text, 6) if the text begins with `Fri, `; "
)
_LITERAL = re.compile("'[^']*'")
"""Text in a format that is no letter of it."""
_TRY = "correct it, or use {}, which returns NULL"

REFUSED = {
    "AGGREGATE": "{what}() computes a value of several rows, and an expression sees one row",
    "WINDOW": "{what}() computes a value of several rows, and an expression sees one row",
    "SKETCH": "{what}() reads or writes a sketch of many rows, and an expression sees one row",
    "GENERATOR": (
        "{what}() creates rows, and an expression gives one value: to match the elements of an "
        "array, write array_contains(left.ids, right.id) in join.condition"
    ),
    "NOT_DETERMINISTIC": f"{{what}} is not deterministic: {_AGAIN}",
    "CLOCK": f"{{what}} is not deterministic: it reads the clock, and {_AGAIN}",
    "SESSION": "{what}() depends on the session or its user",
    "OTHER_FORMAT": "{what}() reads or writes another format: set `format` of the side",
    "TYPE": "{what} has a type that a spec may not use",
    "REFLECTION": "{what}() calls a method of the JVM",
    "FILE": "{what}() reads a file, and a record comes from Kafka",
    "PATTERN": "{what} has a pattern that is no regular expression",
    "SUBQUERY": "contains a subquery: use only columns, literals and functions",
    "UNKNOWN": "{what}() is not a function of Spark",
    "DEPTH": "is nested too deep: simplify it",
    "MEMORY": "needs more memory than the JVM has: simplify it",
    "EXPRESSION": "contains {what}, which a spec may not use",
}
"""By the reason of AllowedSql.java."""

_MISMATCH = "DATATYPE_MISMATCH."
_OF_SPARK = {
    "PARSE_SYNTAX_ERROR": "has a syntax error at $error$hint",
    "INTERNAL_ERROR": "is not a Spark SQL expression",
    "WRONG_NUM_ARGS.WITHOUT_SUGGESTION": (
        "$functionName() takes $expectedNum arguments, but has $actualNum"
    ),
    "UNSUPPORTED_DATATYPE": (
        "$typeName is not a type of Spark: write BOOLEAN, TINYINT, SMALLINT, INT, BIGINT, FLOAT, "
        "DOUBLE, DECIMAL(p, s), STRING, BINARY, DATE, TIMESTAMP, ARRAY<…>, MAP<…, …> or "
        "STRUCT<name: type>"
    ),
    "DIVIDE_BY_ZERO": f"a constant divides by zero: {_TRY.format('try_divide')}",
    "ARITHMETIC_OVERFLOW": f"a constant overflows: {_TRY.format('a function such as try_add')}",
    "CAST_INVALID_INPUT": (
        f"$expression ($sourceType) is not a value of $targetType: {_TRY.format('try_cast')}"
    ),
    "CAST_OVERFLOW": f"$value is too large for $targetType: {_TRY.format('try_cast')}",
    "INVALID_TYPED_LITERAL": "$value is not a value of $valueType: correct it",
    "INVALID_PARAMETER_VALUE.PATTERN": (
        "the regular expression $value of $functionName() is invalid"
    ),
    "INVALID_DATETIME_PATTERN.ILLEGAL_CHARACTER": _FORMAT,
    "INVALID_DATETIME_PATTERN.WITH_SUGGESTION": _FORMAT,
    "INCONSISTENT_BEHAVIOR_CROSS_VERSION.DATETIME_PATTERN_RECOGNITION": _FORMAT,
    "INVALID_EXTRACT_BASE_FIELD_TYPE": "$base is $other, which has no fields",
    "FIELD_NOT_FOUND": "unknown field $fieldName: the fields are $fields",
    f"{_MISMATCH}BINARY_OP_DIFF_TYPES": (
        "$sqlExpr cannot be computed from $left and $right: cast one to the type of the other"
    ),
    f"{_MISMATCH}DATA_DIFF_TYPES": (
        "$sqlExpr needs values of one type, and has $dataType: cast them to the same type"
    ),
    f"{_MISMATCH}UNEXPECTED_INPUT_TYPE": (
        "$inputSql in $sqlExpr is $inputType and must be $requiredType: cast it"
    ),
    f"{_MISMATCH}CAST_WITHOUT_SUGGESTION": "$srcType cannot be cast to $targetType",
    f"{_MISMATCH}CAST_WITH_FUNC_SUGGESTION": (
        "$srcType cannot be cast to $targetType: use $functionNames"
    ),
}
"""By Spark's error condition, with its parameters. Other errors keep Spark's message."""

_CONDITION = re.compile(r"^\[[A-Z0-9_.]+\] ")
_AFTER_MESSAGE = re.compile(
    r"\s*(SQLSTATE: \w+|== SQL|; line \d+ pos \d+|\(line \d+, pos \d+\)).*", re.DOTALL
)
_SETTING = re.compile(r" If necessary set \S+ to \S+ to bypass this error\.?")
_CHOICE = re.compile(r"^\[([^\]]+)\]$")
"""Spark's form of several numbers: `[2, 3]`."""
_QUOTED_TEXT = re.compile(r"[\"`]([^\"`]+)[\"`]")


def problem_of(answer: Mapping[str, Any]) -> str | None:
    """What is wrong with the text of a question. None: nothing."""
    if "refused" in answer:
        return REFUSED[answer["refused"]].format(what=answer["what"])
    if "error" not in answer:
        return None
    known = _OF_SPARK.get(answer.get("condition") or "")
    if known is None:
        return message_of(answer)
    parameters = {
        name: _CHOICE.sub(_either, _QUOTED_TEXT.sub(r"\1", value or ""))
        for name, value in answer["parameters"].items()
    }
    letters = _letters(parameters.get("pattern", ""))
    return Template(known).safe_substitute(parameters, letters=letters)


def _letters(pattern: str) -> str:
    """What to do about the letters of an invalid format that Spark does not parse. Empty: the
    format has none, or another letter is the reason."""
    used = _LITERAL.sub("", pattern.removeprefix("'").removesuffix("'"))
    letters = [letter for letter in _NOT_PARSED if letter in used]
    if not letters or set(_NOT_KNOWN) & set(used):
        return ""
    return _LETTERS.format(letters=" and ".join(letters))


def _either(choice: re.Match[str]) -> str:
    return choice[1].replace(", ", " or ")


def message_of(answer: Mapping[str, Any]) -> str:
    """Spark's message without its condition, its SQLSTATE, the plan, and settings that a spec has
    not."""
    message = _CONDITION.sub("", answer["error"].strip())
    return _SETTING.sub("", _AFTER_MESSAGE.sub("", message)).strip().rstrip(".")
