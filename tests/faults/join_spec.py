"""The specs of the joins that the fault tests break: a full outer join, in micro-batches with
either operator or in real time, and left outer joins with a table, with either engine."""

from pathlib import Path

from job.spec.engine import Engine
from job.spec.join_conditions import JoinOperator

INTERVAL_SECONDS = 4
"""Duration of an interval: short, so that faults meet its end."""

_SPEC = """
name: {name}
kafka: {{bootstrap_servers: "{servers}"}}
left: {{topic: {name}.left, schema: "k STRING, t TIMESTAMP, n BIGINT", key: [k], event_time: t,
  watermark_delay: 1 hour}}
right: {{topic: {name}.right, schema: "k STRING, t TIMESTAMP, n BIGINT", {right}}}
join: {{{join}}}
output:
  topic: {name}.out
  key: k
  columns: {{k: "coalesce(left.k, right.k)", l: left.n, r: right.n}}
checkpoint: {checkpoint}
on_bad_record: drop
{engine}
"""


def join_spec(
    name: str,
    servers: str,
    checkpoint: Path,
    engine: Engine,
    interval_seconds: int = INTERVAL_SECONDS,
    operator: JoinOperator = JoinOperator.SPARK,
) -> str:
    """`operator`: of micro-batches."""
    chosen = "" if engine is Engine.REAL_TIME else f", operator: {operator}"
    return _SPEC.format(
        name=name,
        servers=servers,
        right="key: [k], event_time: t, watermark_delay: 1 hour",
        join="type: full_outer, match_window: {before: 1 minute, after: 5 minutes}" + chosen,
        checkpoint=checkpoint,
        engine=_engine(engine, interval_seconds),
    )


LATEST = "key: [record_key], table: latest"
FINAL = (
    "key: [k], event_time: t, watermark_delay: 1 hour, "
    "table: {version: as_of, final: true, delete: n % 10 = 0}"
)


def table_spec(
    name: str,
    servers: str,
    checkpoint: Path,
    engine: Engine,
    interval_seconds: int = INTERVAL_SECONDS,
    table: str = LATEST,
) -> str:
    """`table`: LATEST or FINAL."""
    return _SPEC.format(
        name=name,
        servers=servers,
        right=table,
        join="type: left_outer",
        checkpoint=checkpoint,
        engine=_engine(engine, interval_seconds),
    )


def _engine(engine: Engine, interval_seconds: int) -> str:
    if engine is not Engine.REAL_TIME:
        return f"engine: {engine}"
    return f"engine: {engine}\nreal_time: {{checkpoint_interval: {interval_seconds} seconds}}"
