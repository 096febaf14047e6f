"""Streamjoin as a measured program."""

import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

from bench.running import Program, Task
from deploy.local.processes import start_child
from job.installation.java import java_home
from job.spec.engine import Engine
from job.spec.join_conditions import JoinOperator
from job.spec.output import Delivery


@dataclass(frozen=True)
class Streamjoin(Program):
    """This project's job, on one machine, with its default settings."""

    delivery: Delivery
    state_partitions: int | None = field(default=None, kw_only=True)
    """None: the default of the job."""
    engine: Engine = field(default=Engine.MICRO_BATCH, kw_only=True)
    operator: JoinOperator = field(default=JoinOperator.SPARK, kw_only=True)
    """In micro-batches."""
    deduplicates: bool = field(default=False, kw_only=True)
    """Whether both sides have `deduplicate`. No id of the workloads occurs twice on a side, so that
    the results are the same."""
    joins_tables: bool = field(default=True, kw_only=True)

    def start(self, task: Task, folder: Path, log: Path) -> subprocess.Popen[bytes]:
        spec = folder / "spec.yaml"
        text = join_spec(
            task,
            checkpoint_of(folder),
            self.delivery,
            self.engine,
            operator=self.operator,
            deduplicates=self.deduplicates,
        )
        spec.write_text(text)
        environment = {
            **os.environ,
            "JAVA_HOME": str(java_home()),
            # The path of a socket must be short; relative to this folder it is.
            "STREAMJOIN_SOCKET": os.path.relpath(socket_of(folder)),
            # The state stores: the files of a killed job are deleted with the folder.
            "SPARK_LOCAL_DIRS": str(folder / "scratch"),
            # Runs share a name and the broker, and each has a new checkpoint.
            "STREAMJOIN_NEW_QUERY": "true",
        }
        if self.state_partitions is not None:
            environment["STREAMJOIN_STATE_PARTITIONS"] = str(self.state_partitions)
        return start_child(job_command(spec), log=log, environment=environment)


def job_command(spec: Path) -> list[str | Path]:
    return [Path(sys.executable).with_name("streamjoin"), "run", spec]


def socket_of(folder: Path) -> Path:
    return folder / "socket"


def checkpoint_of(folder: Path) -> Path:
    return folder / "checkpoint"


def join_spec(
    task: Task,
    checkpoint: Path,
    delivery: Delivery,
    engine: Engine = Engine.MICRO_BATCH,
    *,
    operator: JoinOperator = JoinOperator.SPARK,
    deduplicates: bool = False,
) -> str:
    # As many ids are stored as rows of the left side.
    within = f"{task.workload.match_window_ms} milliseconds"
    deduplicate = f"deduplicate: {{by: [ad_id], within: {within}}}" if deduplicates else ""
    is_table = task.workload.is_table
    chosen = "" if engine is Engine.REAL_TIME or is_table else f"operator: {operator}"
    table = "table: latest" if is_table else ""
    window = "" if is_table else f"match_window: {{before: 0 seconds, after: {within}}}"
    delay = f"{task.workload.watermark_delay_ms} milliseconds"
    return f"""\
name: {task.join_name}
kafka:
  bootstrap_servers: {task.bootstrap_servers}
left:
  topic: {task.left_topic}
  schema: ad_id BIGINT, shown_at TIMESTAMP, campaign STRING, cost DOUBLE
  key: [ad_id]
  event_time: shown_at
  watermark_delay: {delay}
  {deduplicate}
  {table}
right:
  topic: {task.right_topic}
  schema: ad_id BIGINT, clicked_at TIMESTAMP, user STRING
  key: [ad_id]
  event_time: clicked_at
  watermark_delay: {delay}
  {deduplicate}
join:
  type: {task.workload.join_type}
  {window}
  {chosen}
output:
  topic: {task.output_topic}
  key: ad_id
  columns:
    ad_id: left.ad_id
    campaign: left.campaign
    user: right.user
    shown_at: left.shown_at
    clicked_at: right.clicked_at
  delivery: {delivery}
checkpoint: {checkpoint}
engine: {engine}
on_bad_record: drop
"""
