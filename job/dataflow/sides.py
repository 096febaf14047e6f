"""From the records of one topic to the rows that enter the join. Read top-down: each step is below
its caller."""

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from job.dataflow import replay_sql
from job.dataflow.written import WATERMARK, fails_query
from job.dead_letters import headers as names
from job.dead_letters import sql as dead_letter_sql
from job.dead_letters.failure_text import BAD_RECORD, also, as_sql
from job.encoding.decoded_column import decoded_column
from job.event_time.partitions import EVENT_TIMES, OBSERVED_PARTITIONS_MAX
from job.formats.decoder import Decoder
from job.formats.schemas import UNKNOWN_SCHEMA
from job.join.live_watermark import LiveWatermark
from job.join.processor import DEAD_LETTER, IS_DEAD, IS_DELETED
from job.plan import record_checks, record_sql
from job.plan.deduplication import id_columns
from job.plan.plan import JoinPlan, window_end_column
from job.plan.position import partition_sql, position_column
from job.plan.side_plan import SidePlan
from job.plan.value_sql import DECODED, DECODED_KEY
from job.replay.replay import Replay
from job.spark.in_time_zone import register_in_time_zone
from job.spark.observed_metrics import Counted, observed
from job.spark.try_eval import register_try_eval
from job.spark.watermark import WATERMARK_METADATA
from job.spec.durations import milliseconds
from job.spec.expressions import column_name
from job.sql.literals import quoted
from job.writer.transactions import ID

if TYPE_CHECKING:
    from job.formats.registry import RegistryAccess

UNKNOWN_IDS = "unknown_schema_ids"
"""Observed metric of a side: the schema ids that the registry does not have."""

# Longer than the time from 1970 to the largest event time, at the end of year 9999.
_DELAY_BEYOND_ALL_EVENT_TIMES = "4000000 days"

# For more partitions than OBSERVED_PARTITIONS_MAX, and for partitions added after the start, only
# one record in _SAMPLED_ONE_IN is observed, and the newest records: an event time older than the
# newest of the partition is safe.
_SAMPLED_ONE_IN = 64
# All records of a small batch, which may have none in the sample.
_NEWEST_OBSERVED = 32


def side_rows(
    records: DataFrame,
    side: SidePlan,
    plan: JoinPlan,
    registry: "RegistryAccess | None",
    replay: Replay | None = None,
    letter_bytes_max: int | None = None,
    *,
    live: LiveWatermark | None = None,
    counted: Counted = observed,
) -> DataFrame:
    """Rows of one side as the join stores them: kept columns, position, watermarked event time.

    `replay`: the replay after a change. None: the query replaces no other query.
    `letter_bytes_max`: the largest record that the dead-letter topic accepts, if the join passes
    dead letters on. Then the rows that become dead letters are among the rows, in the column
    DEAD_LETTER. None: the rows are only those that are joined.
    `live`: records how far the tasks have read. None: the run has no intervals.

    The observed metrics are directly above the watermark node, because Spark pushes no filter
    through them: the watermark follows every record that arrives, also a record that fails a side
    filter, the ON condition or the output filter.
    """
    keep: Sequence[str] = ()
    if letter_bytes_max is not None:
        keep = dead_letter_sql.KEPT
    elif plan.fails_on_bad_records:
        keep = record_sql.EXPLAINED
    rows = decoded(records, side, registry, keep=keep)
    if plan.fails_on_bad_records:
        rows = _failing(rows, side, plan, replay)
    if live is not None:
        event_time = f"`{side.event_time_column}`"
        rows = live.recorded(rows, side.side, position_column(side.side), event_time)
    rows = counted(watermarked(rows, side), side.side, record_counts(side), *observed_metrics(side))
    if letter_bytes_max is None:
        rows = kept(rows, side, plan)
    else:
        rows = _with_dead_letters(rows, side, plan, letter_bytes_max)
    return with_window(rows, side, plan)


def decoded(
    records: DataFrame,
    side: SidePlan,
    registry: "RegistryAccess | None",
    keep: Sequence[str] = (),
    unknown_ids: Collection[int] = (),
) -> DataFrame:
    """Typed columns, `reason` and event time of each record.

    `keep`: further columns of the record and of the first step. `unknown_ids`: schema ids to treat
    as unknown.
    """
    for column, reader, name in (
        ("value", side.reader, DECODED),
        ("key", side.key_reader, DECODED_KEY),
    ):
        if reader is not None:
            assert registry is not None, "a side with a registry has access to it"
            decoder, kind = Decoder(reader, registry), record_sql.decoded_type(reader)
            content = decoded_column(records.sparkSession, column, decoder, kind, unknown_ids)
            records = records.withColumn(name, content)
    if side.checks.any:
        register_try_eval(records.sparkSession)
    register_in_time_zone(records.sparkSession, side.time_zone)
    for step in record_sql.steps(side, keep):
        records = records.selectExpr(*step)
    return records


def watermarked(rows: DataFrame, side: SidePlan) -> DataFrame:
    """Declare the event time as the watermark column; the job itself sets the watermark.

    Spark's watermark follows the newest event time of all partitions. The job sets the watermark at
    the end of each batch instead (event_time/watermark.py). With this delay, Spark's own watermark
    is always older. Spark uses the delay for nothing else.
    """
    return rows.withWatermark(f"`{side.event_time_column}`", _DELAY_BEYOND_ALL_EVENT_TIMES)


def record_counts(side: SidePlan) -> dict[str, str]:
    """Conditions by the names of their counts, which protocol/ reads."""
    counts = {
        "records": "true",
        "null_keys": f"reason IS NULL AND {record_checks.counted_null_key(side)}",
    }
    if side.drops_records:
        counts["filtered"] = record_checks.is_filtered(side)
    return counts | {reason: f"reason = '{reason}'" for reason in record_sql.reasons(side)}


def observed_metrics(side: SidePlan) -> list[Column]:
    """Further metrics of a side in each batch; protocol/ reads them by these names."""
    # The timestamp of a record without one is -1.
    record_time = f"nullif(`{column_name(side.side, 'record_timestamp')}`, timestamp_millis(-1))"
    if side.table is not None:  # its records have no results, and so no latency
        record_time = "cast(null AS TIMESTAMP)"
    return [
        F.expr(f"unix_millis(max(`{side.event_time_column}`))").alias("event_time_max_ms"),
        F.expr(_event_times(side)).alias(EVENT_TIMES),
        F.expr(f"unix_millis(min({record_time}))").alias("record_time_min_ms"),
        F.expr(f"unix_millis(max({record_time}))").alias("record_time_max_ms"),
        *([F.expr(unknown).alias(UNKNOWN_IDS)] if (unknown := _unknown_ids(side)) else []),
    ]


def _event_times(side: SidePlan) -> str:
    """Array of (partition, ms) with newest event times: any number per partition."""
    event_time = f"`{side.event_time_column}`"
    partition = f"`{column_name(side.side, 'record_partition')}`"
    if side.topics.are_several:
        partition = f"cast({partition_sql(position_column(side.side))} AS INT)"
    offset = f"`{column_name(side.side, 'record_offset')}`"
    observed = side.partition_numbers if side.partitions <= OBSERVED_PARTITIONS_MAX else ()
    entry = "named_struct('partition', {}, 'ms', {})"
    each = [
        entry.format(
            number, f"unix_millis(max(CASE WHEN {partition} = {number} THEN {event_time} END))"
        )
        for number in observed
    ]
    one = entry.format(partition, f"unix_millis({event_time})")
    others = _is_none_of(partition, observed)
    # Sampled by a hash: offsets of records in transactions may follow a pattern.
    is_sampled = f"{others}pmod(xxhash64({offset}), {_SAMPLED_ONE_IN}) = 0"
    sampled = f"collect_set(CASE WHEN {is_sampled} THEN {one} END)"
    is_newest = f"CASE WHEN {others}{event_time} IS NOT NULL THEN {event_time} END"
    newest = f"coalesce(max_by({one}, {is_newest}, {_NEWEST_OBSERVED}), array())"
    exact = [f"array({', '.join(each)})"] if each else []
    return f"concat({', '.join([*exact, sampled, newest])})"


def _is_none_of(partition: str, observed: Sequence[int]) -> str:
    """A condition, followed by AND. Empty: there is no observed partition."""
    if not observed:
        return ""
    if list(observed) == list(range(len(observed))):
        return f"{partition} >= {len(observed)} AND "
    return f"{partition} NOT IN ({', '.join(map(str, observed))}) AND "


def _unknown_ids(side: SidePlan) -> str:
    """Schema ids that were unknown in this batch. A schema may be registered later, but reading the
    records of the batch again must give the same reasons. Empty: the side has no registry."""
    ids = {
        "value_reason": "schema_id" if side.format.has_registry else None,
        "key_reason": "key_schema_id" if side.keys_have_registry else None,
    }
    cases = " ".join(
        f"WHEN {reason} = '{UNKNOWN_SCHEMA}' THEN {column}"
        for reason, column in ids.items()
        if column
    )
    is_unknown = f"reason = '{UNKNOWN_SCHEMA}'"
    return f"collect_set(CASE WHEN {is_unknown} THEN CASE {cases} END END)" if cases else ""


def kept(rows: DataFrame, side: SidePlan, plan: JoinPlan) -> DataFrame:
    """The rows that enter the join, with only the columns that the join or the output needs."""
    for condition in row_conditions(side, plan):
        rows = rows.where(condition)
    columns = [f"`{column_name(side.side, column.name)}`" for column in side.kept_columns]
    ids = [f"{sql} AS {name}" for name, sql in id_columns(side).items()]
    return rows.selectExpr(*columns, position_column(side.side), *ids, *_deletes(side))


def _deletes(side: SidePlan) -> list[str]:
    """The column IS_DELETED of a table."""
    return [] if side.table is None else [f"({record_checks.deletes_key(side)}) AS {IS_DELETED}"]


def row_conditions(side: SidePlan, plan: JoinPlan) -> list[str]:
    """Conditions of a row that enters the join, in the order of evaluation."""
    row_filter = record_checks.row_filter(side)
    filters = [] if row_filter is None else [row_filter]
    if side.table is not None:  # a record of another kind has none
        filters.append(f"`{side.event_time_column}` IS NOT NULL")
    mirrored = [part.sql for part in side.mirrored]
    keys = [] if plan.null_keys_pass else record_checks.null_checked(side).values()
    return ["reason IS NULL", *filters, *mirrored, *(f"{value} IS NOT NULL" for value in keys)]


def _with_dead_letters(
    rows: DataFrame, side: SidePlan, plan: JoinPlan, bytes_max: int
) -> DataFrame:
    """The rows that are joined, and those that become dead letters. Column DEAD_LETTER: the dead
    letter of a row that becomes one, or becomes one if it is late."""
    assert plan.dead_letter is not None
    rows = _with_reason(rows, side, plan)
    rows = rows.selectExpr("*", f"dead_reason IS NOT NULL AS {IS_DEAD}")
    if plan.dead_letter.takes_late_rows:
        rows = rows.withColumn("dead_reason", F.expr(f"coalesce(dead_reason, '{names.LATE}')"))
    rows = rows.selectExpr("*", f"{dead_letter_sql.message(side)} AS dead_message")
    conditions = " AND ".join(f"({part})" for part in row_conditions(side, plan))
    columns = [f"`{column_name(side.side, column.name)}`" for column in side.kept_columns]
    ids = [f"{sql} AS {name}" for name, sql in id_columns(side).items()]
    contents = ", ".join(dead_letter_sql.letters(plan, side, bytes_max=bytes_max))
    # The identity is the same when the record is read again.
    identity = f"concat({quoted(side.side)}, '/', {position_column(side.side)}, '/', dead_reason)"
    letter = f"struct({contents}, {identity} AS {ID}, cast(null AS TIMESTAMP) AS late_watermark)"
    return rows.where(f"{IS_DEAD} OR ({conditions})").selectExpr(
        *columns,
        position_column(side.side),
        *ids,
        *_deletes(side),
        f"CASE WHEN dead_reason IS NOT NULL THEN {letter} END AS {DEAD_LETTER}",
        IS_DEAD,
    )


def _with_reason(rows: DataFrame, side: SidePlan, plan: JoinPlan) -> DataFrame:
    """The rows with `dead_reason` and the columns of its message. No row is classified as late:
    the join decides that."""
    return rows.selectExpr(
        "*", "false AS is_late", f"{quoted(WATERMARK)} AS late_watermark"
    ).selectExpr(*dead_letter_sql.with_reason(plan, side))


def _failing(rows: DataFrame, side: SidePlan, plan: JoinPlan, replay: Replay | None) -> DataFrame:
    """The same rows. The query fails at the first bad record that the old query has not read.

    Below the observed metrics, through which Spark pushes no filter: another filter could drop the
    bad record.
    """
    message = as_sql(
        BAD_RECORD,
        side=quoted(side.side),
        topic=dead_letter_sql.topic_of_record(side),
        partition=f"`{column_name(side.side, 'record_partition')}`",
        offset=f"`{column_name(side.side, 'record_offset')}`",
        reason="dead_reason",
        message=dead_letter_sql.message(side),
        also=also(side.side),
    )
    passes = fails_query("dead_reason", message)
    if replay is not None:
        passes = (
            f"CASE WHEN {replay_sql.is_before_cut(replay, side.side)} THEN true ELSE {passes} END"
        )
    return _with_reason(rows, side, plan).where(passes).select(rows.columns)


def with_window(rows: DataFrame, side: SidePlan, plan: JoinPlan) -> DataFrame:
    """For tumbling windows: the end of the window as the watermark column.

    Join state format 4 refuses window structs as keys. With the watermark on the window's end a
    row is late, and leaves state, exactly when its window has ended.
    """
    if plan.window is None:
        return rows
    register_in_time_zone(rows.sparkSession, plan.window.time_zone)
    end = plan.window.end_sql(f"`{side.event_time_column}`")
    metadata = {WATERMARK_METADATA: milliseconds(side.watermark_delay)}
    plain = [
        F.col(f"`{name}`").alias(name, metadata={})
        if name == side.event_time_column
        else F.col(f"`{name}`")
        for name in rows.columns
    ]
    return rows.select(
        *plain,
        F.expr(f"timestamp_millis({end})").alias(window_end_column(side.side), metadata=metadata),
    )
