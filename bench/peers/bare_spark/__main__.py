"""Reads and decodes both topics of a spec, with or without the join, and writes the results.

python -m bench.peers.bare_spark SPEC join|no-join
"""

import signal
import sys
from contextlib import closing, suppress
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from bench.sql import SQL
from job.dataflow.dataflow import kafka_records
from job.kafka.security import KafkaAccess
from job.plan.plan import JoinPlan
from job.plan.planner import join_plan
from job.redaction import Redaction
from job.settings import JobSettings, read_settings
from job.spark.session import Jvm
from job.spec.durations import milliseconds
from job.spec.sides import Side
from job.spec.spec import spec_from_yaml

# Times in the formats of the topics and of the job.
_SCHEMAS = {
    "left": "ad_id BIGINT, shown_at BIGINT, campaign STRING, cost DOUBLE",
    "right": "ad_id BIGINT, clicked_at BIGINT, user STRING",
}
_CLICK_ALONE = (
    "named_struct('ad_id', value.ad_id, 'campaign', cast(null AS STRING), 'user', value.user, "
    "'shown_at', cast(null AS TIMESTAMP), 'clicked_at', timestamp_millis(value.clicked_at))"
)
_JOINED = (
    "named_struct('ad_id', left.ad_id, 'campaign', left.campaign, 'user', right.user, "
    "'shown_at', left.shown_at, 'clicked_at', right.clicked_at)"
)
_JSON_OPTIONS = {"timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSS'Z'", "ignoreNullFields": "false"}


def main() -> None:
    spec = spec_from_yaml(Path(sys.argv[1]).read_text(), {})
    settings = read_settings(JobSettings)
    plan = join_plan(spec, SQL, state_partitions=settings.partitions_of_new_state)
    records = joined if sys.argv[2] == "join" else clicks
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # the JVM ends with the query
    with closing(Jvm(settings, plan.driver_options, Redaction())) as jvm:
        output = records(jvm.session(settings, plan.spark_conf), plan)
        writer = output.writeStream.format("kafka").options(**plan.output.sink_options)
        query = writer.option("topic", plan.output.topic).start(checkpointLocation=plan.checkpoint)
        with suppress(KeyboardInterrupt):
            query.awaitTermination()


def joined(spark: SparkSession, plan: JoinPlan) -> DataFrame:
    assert plan.match_window is not None
    assert plan.match_window.after is not None
    window = milliseconds(plan.match_window.after)
    left = _timed(spark, plan, "left", "shown_at").alias("left")
    right = _timed(spark, plan, "right", "clicked_at").alias("right")
    condition = (
        "left.ad_id = right.ad_id AND right.clicked_at BETWEEN left.shown_at "
        f"AND left.shown_at + INTERVAL {window} MILLISECONDS"
    )
    return left.join(right, F.expr(condition), plan.join_type.value).select(
        F.expr("string(left.ad_id)").alias("key"),
        F.to_json(F.expr(_JOINED), _JSON_OPTIONS).alias("value"),
    )


def clicks(spark: SparkSession, plan: JoinPlan) -> DataFrame:
    left, right = (_decoded(spark, plan, side) for side in ("left", "right"))
    # No value is null, but Spark must decode it to evaluate the filter.
    nothing = left.where("value IS NULL").select("key", F.lit("").alias("value"))
    # The closing events of a backlog have negative keys; they are no clicks.
    written = right.where("key NOT LIKE '-%'").select(
        "key", F.to_json(F.expr(_CLICK_ALONE), _JSON_OPTIONS).alias("value")
    )
    return written.unionAll(nothing)


def _timed(spark: SparkSession, plan: JoinPlan, side: Side, event_time: str) -> DataFrame:
    delay = milliseconds(plan.side(side).watermark_delay)
    return (
        _decoded(spark, plan, side)
        .select("value.*")
        .withColumn(event_time, F.timestamp_millis(event_time))
        .withWatermark(event_time, f"{delay} milliseconds")
    )


def _decoded(spark: SparkSession, plan: JoinPlan, side: Side) -> DataFrame:
    return kafka_records(spark, plan.side(side), KafkaAccess(plan.bootstrap_servers)).select(
        F.col("key").cast("string"),
        F.from_json(F.col("value").cast("string"), _SCHEMAS[side]).alias("value"),
    )


if __name__ == "__main__":
    main()
