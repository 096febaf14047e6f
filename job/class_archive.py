"""Creates the class archive: the classes of a join in a file that a JVM maps into memory.

A JVM writes the archive when it ends (class data sharing, JEP 350). So `create` runs a small join
in another process, on files in place of Kafka, whose JVM also creates Kafka's clients. A JVM of
another version, or with other jars, ignores the archive.
"""

import hashlib
import json
import os
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from job.errors import SetupError
from job.installation.folders import replacing, spark_jars
from job.installation.java import java_home
from job.java_jar import JAVA_JAR
from job.jvm_class import jvm_class
from job.jvm_command import CLASS_ARCHIVE
from job.settings import JobSettings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from job.plan.plan import JoinPlan

# An idle machine takes half a minute; busy shared machines have needed more than five.
_SECONDS = 900
_MADE_FROM = ".made-from"
"""Ending of the file that identifies the jars and the Java of the archive."""
_PARTS = ("key", "value")
_SERIALIZATION = "org.apache.kafka.common.serialization"
_SPEC = """
name: class_archive
kafka: {{bootstrap_servers: "localhost:9092"}}
left:
  topic: left
  schema: id BIGINT, at TIMESTAMP, name STRING, cost DOUBLE
  key: [id]
  event_time: at
  watermark_delay: 10 seconds
  filter: cost > 0
right:
  topic: right
  schema: id BIGINT, at TIMESTAMP, name STRING
  key: [id]
  event_time: at
  watermark_delay: 10 seconds
join:
  type: left_outer
  match_window: {{before: 0 seconds, after: 1 minute}}
output:
  topic: results
  key: id
  columns: {{id: left.id, name: left.name, right_name: right.name, at: right.at}}
checkpoint: {folder}/checkpoint
on_bad_record: drop
"""


def is_current(jars: Path) -> bool:
    """Whether the archive next to the jars is complete, and of these jars and this Java."""
    return is_whole(jars / CLASS_ARCHIVE) and _made_from(jars) == _read(jars)


def create(jars: Path) -> Path:
    """Create the archive next to the jars, in another process. Returns its path."""
    archive = jars / CLASS_ARCHIVE
    archive.unlink(missing_ok=True)
    with replacing(archive) as part:
        environment = {
            **os.environ,
            "JAVA_HOME": str(java_home()),
            "JDK_JAVA_OPTIONS": f"-XX:ArchiveClassesAtExit={part} -Xlog:cds=off",
            "STREAMJOIN_JARS": str(jars),
        }
        try:
            done = subprocess.run(
                [sys.executable, "-m", __name__],
                env=environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                timeout=_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise SetupError(f"the class archive was not complete after {_SECONDS} s") from None
        if done.returncode != 0 or not is_whole(part):
            lines = done.stdout.decode(errors="replace").splitlines()[-20:]
            raise SetupError("\n".join(["the JVM wrote no complete class archive:", *lines]))
    _record(jars).write_text(_made_from(jars), encoding="utf-8")
    return archive


def is_whole(archive: Path) -> bool:
    """Whether the archive is complete. The JVM writes the beginning of the file last: a killed JVM
    leaves zeros there."""
    if not archive.exists():
        return False
    with archive.open("rb") as content:
        return any(content.read(4))


def _record(jars: Path) -> Path:
    return jars / f"{CLASS_ARCHIVE}{_MADE_FROM}"


def _read(jars: Path) -> str | None:
    with suppress(OSError):
        return _record(jars).read_text(encoding="utf-8")
    return None


def _made_from(jars: Path) -> str:
    """A JVM compares path, size and time of each jar."""
    digest = hashlib.sha256(f"{java_home()}\n".encode())
    for jar in sorted((*jars.glob("*.jar"), jars / JAVA_JAR, *spark_jars().glob("*.jar"))):
        status = jar.stat()
        digest.update(f"{jar} {status.st_size} {status.st_mtime_ns}\n".encode())
    return digest.hexdigest()


def main() -> None:
    """Run a join of a few rows, in a JVM with the options of JDK_JAVA_OPTIONS."""
    from job.plan.jvm_options import driver_options
    from job.plan.planner import join_plan
    from job.redaction import Redaction
    from job.settings import read_settings
    from job.spark.session import Jvm
    from job.spec.spec import spec_from_yaml
    from job.sql.questions import SqlQuestions

    with tempfile.TemporaryDirectory(prefix="streamjoin-") as name:
        folder = Path(name)
        spec = spec_from_yaml(_SPEC.format(folder=folder), {})
        settings = read_settings(JobSettings)
        jvm = Jvm(settings, driver_options(spec.engine, spec.kafka.security), Redaction())
        try:
            plan = join_plan(spec, SqlQuestions(jvm.ask), state_partitions=2, readers={})
            session = jvm.session(settings, plan.spark_conf)
            _load_kafka(session)
            _run_join(session, plan, folder)
        finally:
            jvm.close()


def _run_join(session: "SparkSession", plan: "JoinPlan", folder: Path) -> None:
    from job.dataflow.dataflow import dataflow
    from job.join.join import join_of

    def records(side: str) -> "DataFrame":
        (folder / side).mkdir()
        lines = [
            {"value": json.dumps({"id": n, "at": f"2024-01-01T{n:02}:00:00Z", "cost": 1.0})}
            for n in range(9)
        ]
        text = "".join(f"{json.dumps(line)}\n" for line in lines)
        for n in range(3):
            (folder / side / f"{n}.json").write_text(text)
        rows = session.readStream.schema("value STRING").option("maxFilesPerTrigger", 1)
        return (
            rows.name(side)
            .json(str(folder / side))
            .selectExpr(
                "cast(null AS BINARY) AS key",
                "cast(value AS BINARY) AS value",
                "0 AS partition",
                "0L AS offset",
                "timestamp_millis(0) AS timestamp",
                "cast(null AS ARRAY<STRUCT<key: STRING, value: BINARY>>) AS headers",
            )
        )

    join = join_of(session, plan)
    results = dataflow(records("left"), records("right"), plan, join)
    query = (
        results.writeStream.outputMode(join.output_mode)
        .option("checkpointLocation", str(folder / "checkpoint"))
        .foreachBatch(lambda batch, _: batch.write.format("noop").mode("append").save())
        .start()
    )
    query.processAllAvailable()
    query.stop()


def _load_kafka(session: "SparkSession") -> None:
    """Load the classes of Kafka's clients. No client connects before it is used."""
    settings = {
        "bootstrap.servers": "localhost:9092",
        **{f"{part}.serializer": f"{_SERIALIZATION}.ByteArraySerializer" for part in _PARTS},
        **{f"{part}.deserializer": f"{_SERIALIZATION}.ByteArrayDeserializer" for part in _PARTS},
    }
    for name in ("producer.KafkaProducer", "consumer.KafkaConsumer"):
        jvm_class(session._jvm, f"org.apache.kafka.clients.{name}")(settings).close()
    jvm_class(session._jvm, "org.apache.kafka.clients.admin.AdminClient").create(settings).close()


if __name__ == "__main__":
    main()
