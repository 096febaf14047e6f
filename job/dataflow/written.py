"""From results to the records of a query: results, and the dead letters of those that cannot be
written.

A result is not written if the output topic accepts no record of its size or without a key, or if an
expression fails on it. All are counted.
"""

from dataclasses import dataclass

from pyspark.sql import DataFrame

from job.dataflow.output_columns import PARTITION, TIMESTAMP
from job.dataflow.results import result_bytes
from job.dead_letters import headers as names
from job.dead_letters import sql as dead_letter_sql
from job.dead_letters.failure_text import REMEDIES, UNWRITTEN_RESULT, as_sql, without_key
from job.join.processor import DEAD_LETTER
from job.plan.plan import JoinPlan
from job.plan.record_checks import EXPRESSION_FAILED, FAILED_FIELD
from job.plan.result_checks import texts
from job.plan.result_id import ID_HEADER, is_unmatched_id
from job.plan.timestamp_sql import iso_text
from job.protocol.totals import Totals
from job.spark.observed_metrics import Counted, observed
from job.sql.literals import quoted
from job.writer.transactions import COLUMNS, ID

OUTPUT = "output"
"""Name of the metrics of the results."""
WRITTEN = "written"
"""Name of the metrics of the dead letters: `<side>/<reason>` is a count."""

FAILURE = "failure"
"""Column of micro-batches after a change, with `on_bad_record: fail`: the message with which the
query fails. Null: the result can be written."""

# The dead letter of an input record.
_LETTER = (
    "STRUCT<key: BINARY, value: BINARY, headers: ARRAY<STRUCT<key: STRING, value: BINARY>>, "
    "side: STRING, reason: STRING, id: STRING, late_watermark: TIMESTAMP>"
)
# Stands in the message of a late row for the watermark, which the join inserts.
WATERMARK = "{watermark}"


@dataclass(frozen=True)
class TopicLimits:
    """The records that the topics accept."""

    result_bytes_max: int
    dead_letter_bytes_max: int
    """0: there is no dead-letter topic."""
    requires_key: bool = False
    """Whether the output topic accepts only results with a key, because it is compacted."""


def written(
    rows: DataFrame,
    plan: JoinPlan,
    limits: TopicLimits,
    *,
    marks_failures: bool = False,
    counted: Counted = observed,
) -> DataFrame:
    """The COLUMNS of results and dead letters (writer/transactions.py), all counted.

    `rows`: those of `output_records`; with the column DEAD_LETTER if the join passes dead letters
    on. `marks_failures`: with `on_bad_record: fail`, a result that cannot be written does not fail
    the query, but gets a FAILURE.
    """
    passes_letters = DEAD_LETTER in rows.columns
    if plan.dead_letter is not None and not passes_letters:
        rows = rows.selectExpr("*", f"cast(null AS {_LETTER}) AS {DEAD_LETTER}")
    letter = DEAD_LETTER if plan.dead_letter is not None else "null"
    size = result_bytes(plan)
    failed = f"{FAILED_FIELD} IS NOT NULL" if FAILED_FIELD in rows.columns else "false"
    no_key = "key IS NULL" if limits.requires_key else "false"
    rows = rows.selectExpr(
        "*",
        f"{letter} IS NOT NULL AS is_letter",
        f"CASE WHEN {letter} IS NOT NULL THEN NULL WHEN {failed} THEN '{EXPRESSION_FAILED}' "
        f"WHEN ({size}) > {limits.result_bytes_max} THEN '{names.VALUE_TOO_LARGE}' "
        f"WHEN {no_key} THEN '{names.NULL_KEY}' END AS reason",
        f"({size}) AS size",
        "cast(headers[0].value AS STRING) AS id",
    )
    rows = counted(rows, OUTPUT, _result_counts(plan))
    marked: list[str] = []
    if plan.fails_on_bad_records and marks_failures:
        failure = _failure(rows, plan, limits)
        marked = [f"CASE WHEN reason IS NOT NULL THEN {failure} END AS {FAILURE}"]
    elif plan.fails_on_bad_records:
        rows = rows.where(fails_query("reason", _failure(rows, plan, limits)))
    if plan.dead_letter is None:
        return (rows if marked else rows.where("reason IS NULL")).selectExpr(
            f"{quoted(plan.output.topic)} AS topic",
            "cast(key AS BINARY) AS key",
            "cast(value AS BINARY) AS value",
            "headers",
            ID,
            f"{_optional(rows, TIMESTAMP, 'BIGINT')} AS {TIMESTAMP}",
            f"{_optional(rows, PARTITION, 'INT')} AS {PARTITION}",
            *marked,
        )
    records = _with_letters(rows, plan, limits)
    counts = _letter_counts(of_records=passes_letters)
    return counted(records, WRITTEN, counts).select(*COLUMNS)


def _optional(rows: DataFrame, name: str, kind: str) -> str:
    """A column that only some specs add to results, or null."""
    return name if name in rows.columns else f"cast(null AS {kind})"


def _with_letters(rows: DataFrame, plan: JoinPlan, limits: TopicLimits) -> DataFrame:
    assert plan.dead_letter is not None
    is_result = "NOT is_letter AND reason IS NULL"
    headers = dead_letter_sql.result_headers(
        plan, ID_HEADER, message=_message(rows, plan, limits), size=_letter_size()
    )
    return rows.selectExpr(
        f"CASE WHEN {is_result} THEN {quoted(plan.output.topic)} "
        f"ELSE {quoted(plan.dead_letter.topic)} END AS topic",
        f"CASE WHEN is_letter THEN {DEAD_LETTER}.key "
        "WHEN reason IS NULL THEN cast(key AS BINARY) END AS key",
        f"CASE WHEN is_letter THEN {DEAD_LETTER}.value "
        "WHEN reason IS NULL THEN cast(value AS BINARY) END AS value",
        f"CASE WHEN is_letter THEN {_headers()} "
        f"WHEN reason IS NULL THEN headers ELSE {headers} END AS headers",
        f"CASE WHEN is_letter THEN {DEAD_LETTER}.side WHEN reason IS NOT NULL THEN 'output' END "
        "AS side",
        f"CASE WHEN is_letter THEN {DEAD_LETTER}.reason ELSE reason END AS reason",
        f"CASE WHEN is_letter THEN {DEAD_LETTER}.id WHEN reason IS NULL THEN id "
        f"ELSE concat(id, '/', reason) END AS {ID}",
        f"CASE WHEN {is_result} THEN {_optional(rows, TIMESTAMP, 'BIGINT')} END AS {TIMESTAMP}",
        f"CASE WHEN {is_result} THEN {_optional(rows, PARTITION, 'INT')} END AS {PARTITION}",
    )


def _headers() -> str:
    """Headers of a dead letter. The message of a late row gets the watermark."""
    watermark = f"{DEAD_LETTER}.late_watermark"
    message = f"replace(cast(h.value AS STRING), {quoted(WATERMARK)}, {iso_text(watermark)})"
    headers = (
        f"transform({DEAD_LETTER}.headers, h -> named_struct('key', h.key, 'value', "
        f"CASE WHEN h.key = '{names.MESSAGE}' THEN cast({message} AS BINARY) ELSE h.value END))"
    )
    return f"CASE WHEN {watermark} IS NULL THEN {DEAD_LETTER}.headers ELSE {headers} END"


def _letter_size() -> str:
    """Bytes of the value that a dead letter leaves out; 0: the result has no value."""
    return f"CASE WHEN reason = '{EXPRESSION_FAILED}' THEN 0 ELSE size END"


def _failure(rows: DataFrame, plan: JoinPlan, limits: TopicLimits) -> str:
    remedies = " ".join(
        f"WHEN {quoted(reason)} THEN {quoted(remedy)}" for reason, remedy in REMEDIES.items()
    )
    return as_sql(
        UNWRITTEN_RESULT,
        id="id",
        reason="reason",
        message=_message(rows, plan, limits),
        remedy=f"CASE reason {remedies} END",
    )


def _message(rows: DataFrame, plan: JoinPlan, limits: TopicLimits) -> str:
    unwritten = (
        f"CASE reason WHEN '{names.NULL_KEY}' THEN {quoted(without_key(plan.output.topic))} "
        f"ELSE {_too_large(plan, limits)} END"
    )
    if FAILED_FIELD not in rows.columns:
        return unwritten
    fields = " ".join(
        f"WHEN {quoted(field)} THEN {quoted(text)}" for field, text in texts(plan).items()
    )
    failed = (
        f"concat({FAILED_FIELD}, ' cannot be evaluated on this result: ', "
        f"coalesce(CASE {FAILED_FIELD} {fields} END, ''))"
    )
    return f"CASE WHEN {FAILED_FIELD} IS NOT NULL THEN {failed} ELSE {unwritten} END"


def _too_large(plan: JoinPlan, limits: TopicLimits) -> str:
    limit = f" bytes, and topic {plan.output.topic} accepts {limits.result_bytes_max}"
    return f"concat('the result has ', size, {quoted(limit)})"


def _result_counts(plan: JoinPlan) -> dict[str, str]:
    """Conditions by the names of their counts."""
    counts = {
        "records": "NOT is_letter",
        "too_large": f"reason = '{names.VALUE_TOO_LARGE}'",
        "failed": f"reason = '{EXPRESSION_FAILED}'",
        "without_key": f"reason = '{names.NULL_KEY}'",
    }
    if plan.join_type.outer_sides:
        counts["unmatched"] = f"NOT is_letter AND reason IS NULL AND {_is_unmatched(plan)}"
    return counts


def _is_unmatched(plan: JoinPlan) -> str:
    if plan.matched_side is None or plan.join_type.anti_side is not None:
        return is_unmatched_id(ID)
    return "headers[1].value IS NULL"


def _letter_counts(*, of_records: bool) -> dict[str, str]:
    """Conditions by the names of their counts. `of_records`: also of the dead letters of input
    records."""
    return {
        f"{side}/{reason}": f"side = '{side}' AND reason = '{reason}'"
        for side, reasons in Totals().dead_letters.items()
        for reason in reasons
        if of_records or side == "output"
    }


def without_failures(records: DataFrame, *, fails: bool) -> DataFrame:
    """The COLUMNS of a micro-batch. `fails`: the query fails at the first FAILURE."""
    if fails and FAILURE in records.columns:
        records = records.where(fails_query(FAILURE, FAILURE))
    return records.select(*COLUMNS)


def fails_query(reason: str, message: str) -> str:
    """A condition that is true without a reason. With one, the query fails with the message."""
    return f"CASE WHEN {reason} IS NULL THEN true ELSE raise_error({message}) END"
