"""Results in Avro as a Spark column, encoded by AvroEncoder.java.

In Java and not by Spark's to_avro, whose module is not among pyspark's jars and not on Maven
Central for this version.
"""

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from job.formats.schemas import OutputSchema
from job.real_time.join import check_classes, java_class


def avro_column(rows: DataFrame, columns: Sequence[Column], schema: OutputSchema) -> Column:
    """`columns` of `rows` as values in Confluent's wire format.

    SetupError if the Java classes were built from other sources.
    """
    assert schema.id is not None, "the job has registered the schema"
    spark = rows.sparkSession
    check_classes(spark)
    types = rows.select(*columns)._jdf.schema()
    encoder = java_class(spark, "AvroEncoder")(schema.id, schema.text, types)
    return Column(encoder.encoded(F.struct(*columns)._jc))
