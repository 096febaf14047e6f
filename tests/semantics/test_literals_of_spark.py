"""A string literal of a spec has the same value as in Spark."""

import pytest
import sqlglot
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from job.join_spec.expressions import Scope, expression
from job.sql.dialect import SpecSql
from job.sql.literals import canonical

# Q stands for a quote where Python would read the end of the text.
_ONE_A_LINE = r"""
'O''Brien'
'aQQQQb'
QQQQ
''
'it\'s'
"say ""x"" "
"it''s"
'a\\b'
'a\\''b'
"a\"b"
r'a\nb'
R"a\"
r'a' 'b'
'a''b' 'c'
'a'"b"'c'
'a' /* x /* y */ z */ 'b'
'a--b'
'/* a */'
'`'
'\n\t\r\b\0\Z'
'\a\f\v\x'
'\%\_%_'
'\\%'
'\u0041\u00e9'
'\u12'
'\U0001F600'
'\ud83d\ude00'
'\101\177\200\0'
'\0\200'
'\01'
concat('a''b', "c""d")
upper('o''b') || r'\d'
date'2026-01-31'
timestamp'2026-01-31'
interval '1' day
'$x'
case 'a''b' when "a'b" then 'y''s' end
'a''b' = "a'b"
"""
LITERALS = [*_ONE_A_LINE.replace("Q", "'").strip().splitlines(), "'a' -- one\n'b'"]
LITERALS += ["'line\nline'", "'tab\t\x07\x1b'", "'é\u2028\x85'"]


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
    with pytest.raises(ValueError, match=r"unmatched|not closed|half of a surrogate pair"):
        canonical(text)


def test_literal_that_is_written_back_has_the_same_value() -> None:
    for value in ["\0" + "200", "a\\", "\\'", "'", '"', "\n", "\\%", "%", "\x07"]:
        written = sqlglot.exp.Literal.string(value).sql(dialect=SpecSql)

        assert value == sqlglot.parse_one(canonical(written), dialect=SpecSql).name
