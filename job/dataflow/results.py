"""From joined rows to the records of the output topic. Each step is below its caller."""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from job.dataflow.output_columns import PARTITION, TIMESTAMP
from job.encoding.encoded_column import encoded_column
from job.plan import result_checks, result_sql
from job.plan.plan import JoinPlan
from job.plan.position import offset_sql, partition_sql, position_column
from job.plan.record_checks import FAILED_FIELD
from job.plan.result_id import ID_HEADER, MATCH_HEADER
from job.plan.side_plan import SidePlan
from job.spark.kafka_partitioner import partition_for_key
from job.spark.observed_metrics import Counted, observed
from job.spec.sides import SIDES
from job.sql.literals import quoted

JOINED = "joined"
"""Name of the metric of the results before output.filter, if the spec has one."""

# What Kafka adds to a record, and the name of the header with the id.
_RESULT_OVERHEAD_BYTES = 200
# The lengths of name and value of a header.
_HEADER_OVERHEAD_BYTES = 10


def output_records(
    rows: DataFrame, plan: JoinPlan, passed_on: str | None = None, counted: Counted = observed
) -> DataFrame:
    """(key, value, headers), the columns of Spark's Kafka sink.

    Key and value are STRING with text or JSON, or BINARY with the id of a schema.

    If results have their event time as timestamp, also `timestamp`: BIGINT, milliseconds.
    If the spec has output.partition_by, also `partition`: INT.
    If an expression can fail on a result, also `failed_field`: the field of the spec that failed,
    with a null key and value, or null.
    `passed_on`: a column that is kept; rows where it is not null are no results, and no filter
    drops them.
    """
    conditions = list(result_checks.filters(plan))
    if conditions:
        is_result = f"{passed_on} IS NULL" if passed_on else "true"
        rows = counted(rows, JOINED, {"results": is_result})
    for condition in conditions:
        rows = rows.where(f"{passed_on} IS NOT NULL OR ({condition})" if passed_on else condition)
    if plan.checks.any:
        rows = rows.withColumn(result_checks.TRIED, F.expr(result_checks.tried(plan)))
    columns = [F.expr(result_checks.column(plan, name)).alias(name) for name in plan.output.columns]
    key = _key(rows, plan)
    value = _value(rows, columns, plan)
    headers = F.expr(_headers(plan)).alias("headers")
    kept = [] if passed_on is None else [F.col(passed_on)]
    if plan.output.has_event_time:
        kept.append(F.expr(result_sql.event_time_ms(plan)).alias(TIMESTAMP))
    if plan.output.partition_by is not None:
        kept.append(_partition(plan).alias(PARTITION))
    if not plan.checks.any:
        return rows.select(key.alias("key"), value.alias("value"), headers, *kept)
    return rows.select(
        key.alias("key"),
        F.when(F.col(result_checks.TRIED).isNotNull(), value).alias("value"),
        headers,
        F.expr(result_checks.failed_field(plan)).alias(FAILED_FIELD),
        *kept,
    )


def _key(rows: DataFrame, plan: JoinPlan) -> Column:
    key, schema = F.expr(result_checks.key(plan)), plan.output.key_schema
    if schema is not None:
        assert plan.output.key is not None, "only a key has a schema"
        columns = [key.alias(name) for name, _ in schema.columns]
        if plan.output.key.type.name == "STRUCT":
            columns = [key.getField(name).alias(name) for name, _ in schema.columns]
        return F.when(key.isNotNull(), encoded_column(rows, columns, schema))
    return F.expr(result_sql.key(plan))


def _value(rows: DataFrame, columns: list[Column], plan: JoinPlan) -> Column:
    if plan.output.schema is not None:
        return encoded_column(rows, columns, plan.output.schema)
    return F.expr(result_sql.json_value(plan))


def _partition(plan: JoinPlan) -> Column:
    chooses = F.expr(f"cast(cast({result_checks.partition_by(plan)} AS STRING) AS BINARY)")
    return partition_for_key(chooses, plan.output.partitions)


def _headers(plan: JoinPlan) -> str:
    """The id of a result (job/plan/result_id.py), and the headers of the spec."""
    shown = plan.identified_sides
    places = [_place(plan.side(side)) if side in shown else "''" for side in SIDES]
    identity = f"cast(concat_ws('|', {', '.join(places)}) AS BINARY)"
    values = {ID_HEADER: identity, **_match_header(plan)} | {
        name: f"cast({result_sql.header(plan, name)} AS BINARY)" for name in plan.output.headers
    }
    entries = (f"named_struct('key', {quoted(n)}, 'value', {value})" for n, value in values.items())
    return f"array({', '.join(entries)})"


def _match_header(plan: JoinPlan) -> dict[str, str]:
    """The place of the record that the id does not have."""
    side = plan.matched_side
    if side is None or side not in plan.join_type.shown_sides:
        return {}
    return {MATCH_HEADER: f"cast(nullif({_place(plan.side(side))}, '') AS BINARY)"}


def result_bytes(plan: JoinPlan) -> str:
    """Size of an output record of `output_records`."""
    headers = [*_match_header(plan), *plan.output.headers]
    names = sum(len(name.encode()) + _HEADER_OVERHEAD_BYTES for name in headers)
    values = (
        f"coalesce(octet_length(headers[{index}].value), 0)" for index in range(1 + len(headers))
    )
    return (
        f"coalesce(octet_length(key), 0) + octet_length(value) + {' + '.join(values)} "
        f"+ {names + _RESULT_OVERHEAD_BYTES}"
    )


def _place(side: SidePlan) -> str:
    position = position_column(side.side)
    number = partition_sql(position)
    topic, partition = side.topics.topic_sql(number), side.topics.partition_sql(number)
    place = f"concat({topic}, '/', {partition}, '/', {offset_sql(position)})"
    return f"coalesce({place}, '')"
