"""Where the results go."""

from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

from job.plan import JoinPlan


def start_query(records: DataFrame, plan: JoinPlan, checkpoint_location: str) -> StreamingQuery:
    """Start writing `records` to the output topic, at least once.

    A batch that was cut short after it had written some of its records is written again.
    """
    return (
        records.writeStream.format("kafka")
        .queryName(plan.name)
        .outputMode("append")
        .trigger(processingTime="0 seconds")
        .options(**plan.output.sink_options)
        .option("topic", plan.output.topic)
        .option("checkpointLocation", checkpoint_location)
        .start()
    )
