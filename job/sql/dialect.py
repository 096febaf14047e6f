"""The dialect in which expressions of a spec are parsed and written back."""

from typing import ClassVar

from sqlglot import exp
from sqlglot.dialects.spark import Spark
from sqlglot.generators.spark import SparkGenerator

from job.sql.literals import quoted


class SpecSql(Spark):
    """sqlglot's Spark SQL, with the values of literals written so that Spark reads them back.

    sqlglot writes the character NUL before `200` as `\\0200`, which Spark reads as `\\020` and `0`.
    """

    class Generator(SparkGenerator):
        TRANSFORMS: ClassVar = {
            **SparkGenerator.TRANSFORMS,
            exp.Literal: lambda _, literal: (
                quoted(literal.name) if literal.is_string else literal.name
            ),
        }
