"""The recorded partitions of keys are those of Kafka's Java client."""

import json
from pathlib import Path

from pyspark.sql import SparkSession

RECORDED = Path(__file__).parents[1] / "golden" / "java_partitions.json"
PARTITIONER = "org.apache.kafka.clients.producer.internals.BuiltInPartitioner"


def test_recorded_partitions_are_those_of_the_java_client(spark: SparkSession):
    partition_for_key = getattr(spark._jvm, PARTITIONER).partitionForKey
    recorded = json.loads(RECORDED.read_text())

    assert recorded == {
        count: {key: partition_for_key(key.encode(), int(count)) for key in partitions}
        for count, partitions in recorded.items()
    }
