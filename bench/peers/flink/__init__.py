"""The join in Flink SQL: an interval join, its state on the heap or in RocksDB."""

import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from string import Template
from typing import Literal

from bench.peers.java import PRODUCER_SETTINGS, JavaProgram, properties
from bench.running import Program, Task
from deploy.local.processes import start_child
from job.spec.output import Delivery

StateBackend = Literal["hashmap", "rocksdb"]

_STATEMENTS = Path(__file__).with_name("join.sql")
# Flink's serializers need these packages open (see bin/config.sh of its distribution).
_OPENED = (
    *("java.lang", "java.net", "java.io", "java.nio", "java.text", "java.time"),
    *("java.util", "java.util.concurrent", "java.util.concurrent.atomic", "sun.net.util"),
)
_JOIN = JavaProgram(
    Path(__file__).with_name("Join.java"),
    ("flink",),
    tuple(f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in _OPENED),
)
_CHECKPOINT_INTERVAL_SECONDS = 10
# Flink's producer requests an hour, the broker grants 15 minutes.
_TRANSACTION_TIMEOUT_MS = 600_000


@dataclass(frozen=True)
class Flink(Program):
    state_backend: StateBackend
    delivery: Delivery
    is_peer: bool = field(default=True, kw_only=True)
    # Exactly once, a checkpoint commits the results since the previous one.
    commit_interval_seconds: float = field(default=_CHECKPOINT_INTERVAL_SECONDS, kw_only=True)

    def prepare(self) -> None:
        _JOIN.prepare()

    def start(self, task: Task, folder: Path, log: Path) -> subprocess.Popen[bytes]:
        settings_file, sql_file = folder / "flink.properties", folder / "join.sql"
        settings_file.write_text(properties(settings(folder.resolve(), self.state_backend)))
        sql_file.write_text(join_sql(task, self.delivery))
        return start_child(_JOIN.command(settings_file, sql_file), log=log)


def settings(folder: Path, state_backend: StateBackend) -> Mapping[str, object]:
    """All other settings are Flink's defaults."""
    return {
        # As many as Streamjoin has tasks: one for each core.
        "parallelism.default": os.cpu_count(),
        "state.backend.type": state_backend,
        "execution.checkpointing.dir": (folder / "checkpoints").as_uri(),
        "execution.checkpointing.interval": f"{_CHECKPOINT_INTERVAL_SECONDS} s",
        "execution.checkpointing.incremental": "true",
        # Rows wait this long for others to the same task: 100 ms by default, for throughput.
        "execution.buffer-timeout.interval": "10 ms",
        # RocksDB's memory.
        "taskmanager.memory.managed.size": "1g",
        "io.tmp.dirs": folder / "tmp",
        # A failure must be visible, not retried indefinitely.
        "restart-strategy.type": "none",
    }


def join_sql(task: Task, delivery: Delivery) -> str:
    workload = task.workload
    kafka = {"connector": "kafka", "properties.bootstrap.servers": task.bootstrap_servers}
    source = {
        **kafka,
        "properties.group.id": task.output_topic,
        "scan.startup.mode": "earliest-offset",
        "format": "json",
    }
    sink = {
        **kafka,
        **{f"properties.{name}": value for name, value in PRODUCER_SETTINGS.items()},
        "properties.transaction.timeout.ms": _TRANSACTION_TIMEOUT_MS,
        "sink.delivery-guarantee": delivery.replace("_", "-"),
        "sink.transactional-id-prefix": task.output_topic,
        "key.format": "raw",
        "key.fields": "record_key",
        "value.format": "json",
        "value.fields-include": "EXCEPT_KEY",
        "value.json.timestamp-format.standard": "ISO-8601",
    }
    return Template(_STATEMENTS.read_text()).substitute(
        left=task.left_topic,
        right=task.right_topic,
        output=task.output_topic,
        source=_options(source),
        sink=_options(sink),
        join="LEFT JOIN" if workload.join_type == "left_outer" else "JOIN",
        match_window=_interval(workload.match_window_ms),
        watermark_delay=_interval(workload.watermark_delay_ms),
    )


def _options(options: Mapping[str, object]) -> str:
    return ",\n  ".join(f"'{name}' = '{value}'" for name, value in options.items())


def _interval(milliseconds: int) -> str:
    return f"'{milliseconds / 1_000:.3f}' SECOND(3, 3)"
