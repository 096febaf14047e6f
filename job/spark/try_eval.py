"""Registers the SQL function `try_eval(expression)`: null where the expression fails on a row.

Spark has try_cast, try_divide and others, each for one expression. Some of them use the expression
TryEval, which has no name in SQL. `try_eval(struct(x))` is null only if x fails: if x is null, the
struct is not. Private API of Spark 4.3.0: see the package docstring. The behaviour is tested by
tests/semantics/test_try_eval.py.
"""

from typing import Any

from pyspark.sql import SparkSession

from job.jvm_class import jvm_class

_NAME = "try_eval"
_TAG, _OPTION = "scala.reflect.ClassTag", "scala.Option"
_EXPRESSION = "org.apache.spark.sql.catalyst.expressions.TryEval"
_REGISTRY = "org.apache.spark.sql.catalyst.analysis.FunctionRegistryBase"


def register_try_eval(spark: SparkSession) -> None:
    """Register it in this session and those that a streaming query clones from it."""
    jvm: Any = spark._jvm
    tag = jvm_class(jvm, _TAG).apply(jvm_class(jvm, "java.lang.Class").forName(_EXPRESSION))
    built = jvm_class(jvm, _REGISTRY).build(_NAME, jvm_class(jvm, _OPTION).empty(), tag)
    registry = spark._jsparkSession.sessionState().functionRegistry()
    registry.createOrReplaceTempFunction(_NAME, built._2(), "scala_udf")
