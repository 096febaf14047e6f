"""Both topics of a spec are read and decoded, the right one is encoded and written.

python -m bench.peers.no_join SPEC
"""

import signal
import sys
from contextlib import closing, suppress
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from job.dataflow import kafka_records
from job.join_spec.expressions import SIDES
from job.join_spec.model import spec_from_yaml
from job.kafka.security import KafkaAccess
from job.plan.model import JoinPlan
from job.plan.planner import join_plan
from job.redaction import Redaction
from job.settings import JobSettings
from job.spark.session import Jvm

# Times as the topics have them, and as the job writes them.
_SCHEMAS = {
    "left": "ad_id BIGINT, shown_at BIGINT, campaign STRING, cost DOUBLE",
    "right": "ad_id BIGINT, clicked_at BIGINT, user STRING",
}
_OUTPUT = (
    "named_struct('ad_id', value.ad_id, 'campaign', cast(null AS STRING), 'user', value.user, "
    "'shown_at', cast(null AS TIMESTAMP), 'clicked_at', timestamp_millis(value.clicked_at))"
)
_JSON_OPTIONS = {"timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSS'Z'", "ignoreNullFields": "false"}


def main() -> None:
    # There is no state; the number stands for nothing.
    plan = join_plan(spec_from_yaml(Path(sys.argv[1]).read_text(), {}), state_partitions=1)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # the JVM is ended with the query
    with closing(Jvm(settings := JobSettings(), plan.spark_conf, Redaction())) as jvm:
        records = output_records(jvm.session(settings, plan.spark_conf), plan)
        writer = records.writeStream.format("kafka").options(**plan.output.sink_options)
        query = writer.option("topic", plan.output.topic).start(checkpointLocation=plan.checkpoint)
        with suppress(KeyboardInterrupt):
            query.awaitTermination()


def output_records(spark: SparkSession, plan: JoinPlan) -> DataFrame:
    access = KafkaAccess(plan.bootstrap_servers)
    left, right = (
        kafka_records(spark, plan.side(side), access).select(
            F.col("key").cast("string"),
            F.from_json(F.col("value").cast("string"), _SCHEMAS[side]).alias("value"),
        )
        for side in SIDES
    )
    # No value is null; Spark has to decode it all the same to find out.
    nothing = left.where("value IS NULL").select("key", F.lit("").alias("value"))
    # A backlog's closing events have negative keys; they are no clicks.
    clicks = right.where("key NOT LIKE '-%'").select(
        "key", F.to_json(F.expr(_OUTPUT), _JSON_OPTIONS).alias("value")
    )
    return clicks.unionAll(nothing)


if __name__ == "__main__":
    main()
