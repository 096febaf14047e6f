"""What `validate` refuses although Spark accepts it.

tests/unit/sql/test_refusals.py: each example is refused, and docs/spec.md lists each entry.
tests/semantics/test_spec_differential.py: Spark accepts each example.
tests/semantics/expression_differential.py: Spark refuses all other SQL that `validate` refuses.
"""

from dataclasses import dataclass

from job.sql.messages import REFUSED


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
        "functions of several rows, or that create rows: aggregates, windows, generators, sketches",
        "column", "sum(left.n)", "computes a value of several rows",
    ),
    Refusal(
        "functions of the clock or of chance",
        "column", "rand()", "is not deterministic",
    ),
    Refusal(
        "subqueries, and functions of the session, of files and of the JVM",
        "column", "left.n in (select 1)", "contains a subquery",
    ),
    Refusal(
        "functions that read or write Avro, Protobuf and XML",
        "column", "from_xml(left.s, 'a INT')", "reads or writes another format",
    ),
    Refusal(
        "collations, and functions of the types TIMESTAMP_NTZ, TIME, VARIANT, GEOMETRY, GEOGRAPHY",
        "column", "parse_json(left.s)", "has a type that a spec may not use",
    ),
    Refusal(
        "in a schema: NOT NULL, DEFAULT, and types that JSON, Avro and Protobuf have no values for",
        "schema", "a INT NOT NULL", "a schema contains only names and types",
    ),
    Refusal(
        "in a schema: a name twice, a name with a backquote",
        "schema", "a INT, A INT", "names a column twice (ignoring case)",
    ),
    Refusal(
        "two key columns of different types",
        "key", "i = s", "declare the same type for both",
    ),
)  # fmt: skip

EXPRESSION_MESSAGES = tuple(
    text.replace("{what}()", "").replace("{what}", "").strip() for text in REFUSED.values()
)
