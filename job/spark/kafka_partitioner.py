"""The partition that Kafka's Java client chooses for a key, as a column.

Calls the client's own method. Private API of Spark 4.3.0 and of Kafka's client: see the package
docstring. tests/semantics/test_output_record.py compares it with recorded partitions.
"""

from typing import Any

from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F

from job.jvm_class import jvm_class

_PARTITIONER = "org.apache.kafka.clients.producer.internals.BuiltInPartitioner"
_INVOKE = "org.apache.spark.sql.catalyst.expressions.objects.StaticInvoke"
_EXPRESSIONS = "org.apache.spark.sql.classic.ExpressionUtils"
_TYPES = "org.apache.spark.sql.types.DataTypes"


def partition_for_key(key: Column, partitions: int) -> Column:
    """INT: the partition for `key`, a BINARY, in a topic with `partitions` partitions. Null for a
    null key."""
    spark = SparkSession.active()
    jvm: Any = spark._jvm
    expressions, to_seq = jvm_class(jvm, _EXPRESSIONS), jvm.PythonUtils.toSeq
    arguments = [expressions.expression(part._jc) for part in (key, F.lit(partitions))]
    invoke = jvm_class(jvm, _INVOKE)(
        jvm_class(jvm, "java.lang.Class").forName(_PARTITIONER, True, _class_loader(jvm)),
        jvm_class(jvm, _TYPES).IntegerType,
        "partitionForKey",
        to_seq(arguments),
        to_seq([]),
        True,  # null for a null key
        True,
        True,
        jvm_class(jvm, "scala.Option").empty(),
    )
    return Column(expressions.column(invoke))


def _class_loader(jvm: Any) -> Any:
    """The class loader of the connector's jars."""
    return jvm_class(jvm, "java.lang.Thread").currentThread().getContextClassLoader()
