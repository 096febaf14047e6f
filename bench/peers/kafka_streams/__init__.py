"""The join in Kafka Streams: stores in RocksDB with changelog topics in Kafka.

A table has one store. Its topic is read before that of the stream, because its records have older
event times: by default (`max.task.idle.ms=0`) a task waits for records that the broker has.
"""

import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from bench.peers.java import PRODUCER_SETTINGS, JavaProgram, properties
from bench.running import Program, Task
from deploy.local.processes import start_child
from job.spec.output import Delivery

# The broker's set contains the client and the JSON library that Kafka Streams needs.
_JOIN = JavaProgram(Path(__file__).with_name("Join.java"), ("kafka_streams", "kafka"))
_GUARANTEES = {
    Delivery.EXACTLY_ONCE: "exactly_once_v2",
    Delivery.AT_LEAST_ONCE: "at_least_once",
}


@dataclass(frozen=True)
class KafkaStreams(Program):
    delivery: Delivery
    is_peer: bool = field(default=True, kw_only=True)
    joins_tables: bool = field(default=True, kw_only=True)

    def prepare(self) -> None:
        _JOIN.prepare()

    def start(self, task: Task, folder: Path, log: Path) -> subprocess.Popen[bytes]:
        file = folder / "join.properties"
        file.write_text(properties(settings(task, folder / "state", self.delivery)))
        return start_child(_JOIN.command(file), log=log)


def settings(task: Task, state: Path, delivery: Delivery) -> Mapping[str, object]:
    """All other settings are the defaults of Kafka Streams."""
    return {
        # The changelogs are named after it, and are deleted with the output topic.
        "application.id": task.output_topic,
        "bootstrap.servers": task.bootstrap_servers,
        "state.dir": state,
        "processing.guarantee": _GUARANTEES[delivery],
        # As many as Streamjoin has tasks: one for each core.
        "num.stream.threads": os.cpu_count(),
        "auto.offset.reset": "earliest",
        **{f"producer.{name}": value for name, value in PRODUCER_SETTINGS.items()},
        "join.left": task.left_topic,
        "join.right": task.right_topic,
        "join.output": task.output_topic,
        "join.type": task.workload.join_type,
        "join.table": str(task.workload.is_table).lower(),
        "join.match_window_ms": task.workload.match_window_ms,
        "join.watermark_delay_ms": task.workload.watermark_delay_ms,
    }
