"""The spec of the join that the fault tests break: a full outer join, in micro-batches with either
operator or in real time."""

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
right: {{topic: {name}.right, schema: "k STRING, t TIMESTAMP, n BIGINT", key: [k], event_time: t,
  watermark_delay: 1 hour}}
join: {{type: full_outer, match_window: {{before: 1 minute, after: 5 minutes}}{operator}}}
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
    lines = f"engine: {engine}"
    if engine is Engine.REAL_TIME:
        lines += f"\nreal_time: {{checkpoint_interval: {interval_seconds} seconds}}"
    return _SPEC.format(
        name=name, servers=servers, checkpoint=checkpoint, operator=chosen, engine=lines
    )
