"""What `validate` refuses although Spark accepts it.

tests/unit/sql/test_refusals.py: each example is refused, and docs/spec.md lists each entry.
tests/semantics/test_spec_differential.py: Spark accepts each example.
tests/semantics/spec_differential.py: no other difference between `validate` and Spark.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Refusal:
    reason: str
    """As docs/spec.md lists it."""
    kind: str
    """Where the example stands: column, schema or key."""
    example: str
    """Over COLUMNS of both sides. A key: a column of each side, separated by ` = `."""
    message: str
    """Part of the message. No other message contains it."""


COLUMNS = "b BOOLEAN, i INT, n BIGINT, s STRING, d DATE, t TIMESTAMP, ai ARRAY<INT>"

REFUSALS = (
    Refusal(
        "functions outside of the allow-list",
        "column", "soundex(left.s)", "is not one of the functions allowed in a spec",
    ),
    Refusal(
        "functions of time or chance",
        "column", "rand()", "is not deterministic",
    ),
    Refusal(
        "subqueries",
        "column", "left.n in (select 1)", "a subquery",
    ),
    Refusal(
        "other syntax of Spark SQL",
        "column", "left.s collate UNICODE", "which a spec may not use",
    ),
    Refusal(
        "TIMESTAMP_NTZ, TIMESTAMP_LTZ, TIME, CHAR, VARCHAR, VARIANT, VOID, GEOMETRY, GEOGRAPHY, "
        "collations",
        "column", "cast(left.s as string collate UNICODE)", "is not a type that a spec may use",
    ),
    Refusal(
        "constants that `validate` does not compute",
        "column", "to_date('31/01/2026', 'dd/MM/yyyy')",
        "is a constant that is not computed here",
    ),
    Refusal(
        "operators without parentheses that sqlglot, which parses the spec, groups in another way",
        "column", "left.s || '-' || left.n + 1", "Spark groups",
    ),
    Refusal(
        "a negative index of an array",
        "column", "left.ai[-1]", "fails: an index must be 0 or more",
    ),
    Refusal(
        "a regular expression that Java does not compile",
        "column", "left.s rlike '('", "the regular expression",
    ),
    Refusal(
        "a format that Spark does not know",
        "column", "date_format(left.t, 'bbbb')", "the format",
    ),
    Refusal(
        "a LIKE pattern with a backslash that escapes nothing",
        "column", "left.s like 'a\\\\b'", "escapes nothing: write it twice",
    ),
    Refusal(
        "date_sub() of a STRING",
        "column", "date_sub(left.d, left.s)", "is STRING: write cast(",
    ),
    Refusal(
        "to_timestamp() of a type without a cast to TIMESTAMP",
        "column", "to_timestamp(left.b)", "which has no cast to TIMESTAMP",
    ),
    Refusal(
        "to_date() of a type without a cast to DATE",
        "column", "to_date(left.n)", "which has no cast to DATE",
    ),
    Refusal(
        "concat(), hash() and the like without arguments",
        "column", "concat()", "takes 1 or more arguments, but has 0",
    ),
    Refusal(
        "arguments that Spark ignores",
        "column", "hour(left.t, 1)", "Spark ignores the others",
    ),
    Refusal(
        "an element of a bare NULL",
        "column", "null[0]", "is VOID: only an ARRAY or a MAP has an index",
    ),
    Refusal(
        "NOT NULL, and COMMENT inside a STRUCT",
        "schema", "a INT NOT NULL", "remove it, a schema contains only names and types of columns",
    ),
    Refusal(
        "a column or a field twice",
        "schema", "a INT, A INT", "twice (ignoring case)",
    ),
    Refusal(
        "a TIMESTAMP inside another type",
        "schema", "a ARRAY<TIMESTAMP>", "contains a TIMESTAMP inside another type",
    ),
    Refusal(
        "an INTERVAL",
        "schema", "a INTERVAL DAY", "has an INTERVAL, which no value can contain",
    ),
    Refusal(
        "a STRUCT without fields",
        "schema", "a STRUCT<>", "STRUCT<> has no fields",
    ),
    Refusal(
        "a name that Spark cannot resolve",
        "schema", "`a``b` INT", "is not a name that Spark can resolve",
    ),
    Refusal(
        "more than 20 types in each other",
        "schema", "a " + "ARRAY<" * 21 + "INT" + ">" * 21, "has types nested more than",
    ),
    Refusal(
        "two key columns of different types",
        "key", "i = s", "declare the same type for both",
    ),
)  # fmt: skip

EXPRESSION_MESSAGES = tuple(refusal.message for refusal in REFUSALS if refusal.kind == "column")
SCHEMA_MESSAGES = tuple(
    refusal.message for refusal in REFUSALS
    if refusal.kind == "schema" or refusal.message == "is not a type that a spec may use"
)  # fmt: skip
KEY_MESSAGES = tuple(refusal.message for refusal in REFUSALS if refusal.kind == "key")
