"""The partition that Kafka's Java client chooses for a key, as a column.

Calls the client's own method. tests/semantics/test_output_record.py compares it with recorded
partitions.
"""

from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F

from job.spark.static_call import static_call

_PARTITIONER = "org.apache.kafka.clients.producer.internals.BuiltInPartitioner"


def partition_for_key(key: Column, partitions: int) -> Column:
    """INT: the partition for `key`, a BINARY, in a topic with `partitions` partitions. Null for a
    null key."""
    return static_call(
        *(SparkSession.active(), _PARTITIONER, "partitionForKey", "IntegerType"),
        [key, F.lit(partitions)],
        null_for_null=True,
        is_deterministic=True,
    )
