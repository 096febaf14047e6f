"""Columns as values in Avro or Protobuf, encoded by AvroEncoder.java and ProtobufEncoder.java.

Spark's to_avro and to_protobuf are not used: their modules are not among pyspark's jars, and not on
Maven Central for this version.
"""

from collections.abc import Sequence
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from job.formats.schemas import OutputSchema
from job.spark.java_classes import check_classes, java_class
from job.spec.value_format import Format
from job.sql.json_types import type_of_json


def encoded_column(rows: DataFrame, columns: Sequence[Column], schema: OutputSchema) -> Column:
    """`columns` of `rows` as values in Confluent's wire format.

    Raises SetupError if the Java classes were built from other sources, ValueError if the columns
    do not have the types of the schema.
    """
    check_classes(rows.sparkSession)
    selected = rows.select(*columns)
    for field, (name, kind) in zip(selected.schema, schema.columns, strict=True):
        spark_type = type_of_json(field.dataType.json())
        if field.name != name or spark_type != kind:
            raise ValueError(f"column {field.name} is {spark_type}, not {name} {kind}")
    return Column(_encoder(selected, schema).encoded(F.struct(*columns)._jc))


def _encoder(rows: DataFrame, schema: OutputSchema) -> Any:
    assert schema.id is not None, "the job has registered the schema"
    spark, types = rows.sparkSession, rows._jdf.schema()
    if schema.format is Format.AVRO:
        return java_class(spark, "AvroEncoder")(schema.id, schema.text, types)
    return java_class(spark, "ProtobufEncoder")(schema.id, types)
