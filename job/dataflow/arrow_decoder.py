"""The decoder of Avro and Protobuf as a Spark column: an Arrow UDF on the executors."""

from collections.abc import Collection

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.pandas.functions import arrow_udf

from job.dataflow.record_sql import decoded_type
from job.formats.decoder import Decoder
from job.formats.registry import RegistryAccess
from job.plan.plan import SidePlan
from job.spark.arrow_types import arrow_type


def decoded_value(
    side: SidePlan, registry: RegistryAccess | None, unknown_ids: Collection[int]
) -> Column:
    """The decoded `value` of a record. Its type is record_sql.decoded_type(side)."""
    assert side.reader is not None, "the job has pinned the schema"
    assert registry is not None, "a side with a registry has access to it"
    decoder = Decoder(side.reader, registry, frozenset(unknown_ids))
    kind = decoded_type(side)
    row = arrow_type(kind)

    def decode(values: pa.Array) -> pa.Array:
        return decoder(values, row)

    # PySpark reads the return type from this argument; its stubs declare functionType there.
    in_python = arrow_udf(decode, kind)  # type: ignore[call-overload]
    return in_python(F.col("value"))  # type: ignore[no-any-return]
