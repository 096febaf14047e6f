"""A call of a static Java method as a column.

Private API of Spark 4.3.0: see the package docstring.
"""

from collections.abc import Sequence
from typing import Any

from pyspark.sql import Column, SparkSession

from job.jvm_class import jvm_class

_INVOKE = "org.apache.spark.sql.catalyst.expressions.objects.StaticInvoke"
_EXPRESSIONS = "org.apache.spark.sql.classic.ExpressionUtils"
_TYPES = "org.apache.spark.sql.types.DataTypes"


def static_call(
    spark: SparkSession,
    java_class: str,
    method: str,
    type_name: str,
    arguments: Sequence[Column],
    *,
    null_for_null: bool,
    is_deterministic: bool,
) -> Column:
    """`type_name`: of the result, as in Spark's DataTypes. `null_for_null`: whether the result is
    null if an argument is; otherwise no argument may be null. A call that is not deterministic is
    made for each row: Spark moves no filter below it."""
    jvm: Any = spark._jvm
    expressions, to_seq = jvm_class(jvm, _EXPRESSIONS), jvm.PythonUtils.toSeq
    invoke = jvm_class(jvm, _INVOKE)(
        jvm_class(jvm, "java.lang.Class").forName(java_class, True, _class_loader(jvm)),
        getattr(jvm_class(jvm, _TYPES), type_name),
        method,
        to_seq([expressions.expression(argument._jc) for argument in arguments]),
        to_seq([]),
        null_for_null,
        null_for_null,
        is_deterministic,
        jvm_class(jvm, "scala.Option").empty(),
    )
    return Column(expressions.column(invoke))


def _class_loader(jvm: Any) -> Any:
    """The class loader of the jars of the job."""
    return jvm_class(jvm, "java.lang.Thread").currentThread().getContextClassLoader()
