"""The programs that can be measured, by name."""

from bench.peers.bare_spark import BareSpark
from bench.peers.flink import Flink
from bench.peers.kafka_streams import KafkaStreams
from bench.running import Program
from bench.streamjoin import Streamjoin
from job.spec.engine import Engine
from job.spec.join_conditions import JoinOperator
from job.spec.output import Delivery

_ONCE, _AT_LEAST_ONCE = Delivery.EXACTLY_ONCE, Delivery.AT_LEAST_ONCE

PROGRAMS: dict[str, Program] = {
    program.name: program
    for program in [
        Streamjoin("streamjoin", _ONCE),
        Streamjoin("streamjoin-at-least-once", _AT_LEAST_ONCE),
        Streamjoin("streamjoin-real-time", _AT_LEAST_ONCE, engine=Engine.REAL_TIME),
        Streamjoin("streamjoin-real-time-exactly-once", _ONCE, engine=Engine.REAL_TIME),
        Streamjoin("streamjoin-processor", _ONCE, operator=JoinOperator.STREAMJOIN),
        Streamjoin(
            "streamjoin-deduplicate",
            _ONCE,
            operator=JoinOperator.STREAMJOIN,
            deduplicates=True,
            joins_tables=False,
        ),
        Streamjoin("streamjoin-8-partitions", _ONCE, state_partitions=8),
        KafkaStreams("kafka-streams", _ONCE),
        KafkaStreams("kafka-streams-at-least-once", _AT_LEAST_ONCE),
        Flink("flink-rocksdb", "rocksdb", _ONCE),
        Flink("flink-rocksdb-at-least-once", "rocksdb", _AT_LEAST_ONCE),
        Flink("flink-hashmap", "hashmap", _ONCE),
        Flink("flink-hashmap-at-least-once", "hashmap", _AT_LEAST_ONCE),
        BareSpark("bare-spark"),
        BareSpark("no-join", joins=False),
    ]
}
