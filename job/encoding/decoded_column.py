"""Values or keys of a side as a Spark column, decoded by ValueDecoder.java.

Spark's from_avro is not used: it takes one writer schema for all values, does not read schema ids,
and returns no reason for a value that it cannot read.
"""

import json
from collections.abc import Collection
from hashlib import sha256
from uuid import uuid4

from pyspark.java_gateway import ensure_callback_server_started
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F

from job.formats.decoder import Decoder
from job.spark.java_classes import check_classes, java_class

# Jobs can share a JVM, but must not share schemas: their registries may differ.
_PROCESS = uuid4().hex


def decoded_column(
    spark: SparkSession, name: str, decoder: Decoder, ddl: str, unknown_ids: Collection[int]
) -> Column:
    """The decoded column `name`: a struct with the fields `ddl`.

    `unknown_ids`: schema ids that were unknown when the batch was first read, and count as unknown
    again. Raises SetupError if the Java classes were built from other sources.
    """
    check_classes(spark)
    # Equal decoders have equal names, so that executors reuse the schemas that they have looked up.
    lookup = f"{_PROCESS}-{sha256(repr(decoder).encode()).hexdigest()}"
    install_lookup(spark, lookup, decoder)
    unknown = {number: decoder.unknown(number) for number in unknown_ids}
    java = java_class(spark, "ValueDecoder")(lookup, ddl, json.dumps(unknown))
    return Column(java.decoded(F.col(name)._jc))


def install_lookup(spark: SparkSession, name: str, decoder: Decoder) -> None:
    """Return schemas to executors, by the `name` of the lookup."""
    ensure_callback_server_started(spark.sparkContext._gateway)  # type: ignore[no-untyped-call]  # PySpark's
    java_class(spark, "SchemaLookups").install(name, _Lookup(decoder))


class _Lookup:
    """Implements streamjoin.SchemaLookup."""

    class Java:
        implements = ("streamjoin.SchemaLookup",)

    def __init__(self, decoder: Decoder) -> None:
        self._decoder = decoder

    def answer(self, schema_id: int) -> str:
        return self._decoder.answer(schema_id)
