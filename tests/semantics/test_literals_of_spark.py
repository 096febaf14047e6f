"""A string literal of a spec has the value that Spark reads from the same text."""

import pytest
import sqlglot
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from job.join_spec.expressions import Scope, expression
from job.sql.dialect import SpecSql
from job.sql.literals import canonical

LITERALS = [
    r"'O''Brien'", r"'a''''b'", r"''''", r"''", r'"say ""x"""', r'"it''s"', r"'a\'b'", r"'a\\b'",
    r"'a\\''b'", r'"a\"b"', r"r'a\nb'", r'R"a\"', r"r'a' 'b'", r"'a' 'b'", r"'a''b' 'c'", "'a'\"b\"'c'",
    r"'a' -- one" "\n" r"'b'", r"'a' /* x /* y */ z */ 'b'", r"'a--b'", r"'/* a */'", r"'`'",
    r"'\n\t\r\b\0\Z'", r"'\a\f\v\x'", r"'\%\_%_'", r"'\\%'", r"'\u0041\u00e9'", r"'\u12'",
    r"'\U0001F600'", r"'\ud83d\ude00'", r"'\101\177\200\0'", r"'\0\200'", r"'\01'", "'é\u2028\x85'",
    "'line\nline'", "'tab\t\x07\x1b'", r'''concat('a''b', "c''d""e")''', r"upper('o''b') || r'\d'",
    "date'2026-01-31'", "timestamp'2026-01-31'", "interval '1' day", "'$x'",
    r'''case 'a''b' when "a'b" then 'y''s' end''', r'''concat('a''b' = "a'b")''', r"length('''''')",
]  # fmt: skip


def test_every_form_of_literal_is_sparks(spark: SparkSession) -> None:
    row = spark.range(1).select(
        *(F.expr(text).alias(f"user_{index}") for index, text in enumerate(LITERALS)),
        *(
            F.expr(expression(text, Scope({}), "f").sql).alias(f"spec_{index}")
            for index, text in enumerate(LITERALS)
        ),
    ).first()  # fmt: skip

    for index, text in enumerate(LITERALS):
        assert (text, row[f"user_{index}"]) == (text, row[f"spec_{index}"])


@pytest.mark.parametrize("text", ["'a", "'a''", '"', "'a\\'", "/* 'a'", "`a", "r'a", "'\\ud83d'"])
def test_literal_without_an_end_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="without|half a character"):
        canonical(text)


def test_literal_that_is_written_back_has_the_same_value() -> None:
    for value in ["\0" + "200", "a\\", "\\'", "'", '"', "\n", "\\%", "%", "\x07"]:
        written = sqlglot.exp.Literal.string(value).sql(dialect=SpecSql)

        assert value == sqlglot.parse_one(canonical(written), dialect=SpecSql).name
