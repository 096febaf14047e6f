"""Columns that the values of a format can contain."""

from job.errors import Problem, SpecError
from job.spec.value_format import Format
from job.spec.value_schema import Column, ValueSchema, refuse_other_keys, value_schema
from job.sql.questions import SqlError, SqlQuestions
from job.sql.types import STRING, SqlType

TEXT_SCHEMA = ValueSchema((Column("value", STRING),))
"""The columns of a value in the format text."""
_FUNCTION_FROM_TEXT = {
    "ARRAY": "split()",
    "MAP": "from_json() or str_to_map()",
    "STRUCT": "from_json()",
    "BINARY": "unbase64() or unhex()",
}


def refuse_other_columns(schema: ValueSchema, written: Format, field: str) -> None:
    """Raises SpecError for a column that a value of the format `written` cannot have."""
    match written:
        case Format.JSON | Format.JSON_SCHEMA:
            refuse_other_keys(schema, field)
        case Format.CSV:
            _refuse_nested(schema, field)
        case Format.TEXT if schema != TEXT_SCHEMA:
            shown = ", ".join(f"{column.name} {column.type}" for column in schema.columns)
            message = "must be `value STRING` with format text, or omitted"
            raise SpecError([Problem(field, shown, message)])


def record_key_type(ddl: str, field: str, sql: SqlQuestions) -> SqlType:
    """The type `ddl` of JSON keys. SpecError with `field` if it is no supported type."""
    example = "write one type in Spark DDL, e.g. `BIGINT` or `STRUCT<id: BIGINT, region: STRING>`"
    try:
        count = len(sql.columns(f"record_key {ddl}"))
    except SqlError as error:
        raise SpecError([Problem(field, ddl, f"is no type ({error}): {example}")]) from error
    if count != 1:
        raise SpecError([Problem(field, ddl, f"has {count} columns: {example}")])
    schema = value_schema(f"record_key {ddl}", field, sql)
    refuse_other_keys(schema, field)
    return schema.columns[0].type


def _refuse_nested(schema: ValueSchema, field: str) -> None:
    problems = [
        Problem(
            field,
            f"{column.name} {column.type}",
            f"has {column.type.name}, which a CSV field cannot contain: declare the column STRING "
            f"and convert it in an expression with {_FUNCTION_FROM_TEXT[column.type.name]}",
        )
        for column in schema.columns
        if column.type.name in _FUNCTION_FROM_TEXT
    ]
    if problems:
        raise SpecError(problems)
