"""Creates the class archive: the classes of a join in a file that a JVM maps into memory.

    python -m deploy.local.class_archive

A JVM writes the archive when it ends (class data sharing, JEP 350), so the demo's join runs for a
moment on a separate broker. `streamjoin run` uses the archive if it is next to the jars. A JVM of
another version, or with other jars, ignores it.
"""

import json
import os
import sys
import tempfile
import time
from pathlib import Path

from confluent_kafka import Consumer, Producer

from deploy.local.command import exit_code
from deploy.local.demo_load import OUTPUT_TOPIC, TOPICS
from deploy.local.jars import jar_folder
from deploy.local.java import java_home
from deploy.local.kafka import EmbeddedKafka
from deploy.local.processes import last_lines, start_child, stop_child
from job.errors import QueryError
from job.jvm_command import CLASS_ARCHIVE
from job.kafka.clients import produce

SPEC = Path(__file__).with_name("demo.yaml")
# A busy shared machine has needed 60 s. The first results of a start without the archive take
# longest.
FIRST_RESULT_SECONDS = 180.0
# Writing the archive takes up to 20 s of it.
STOP_SECONDS = 120.0


def make(folder: Path) -> Path:
    """Create the archive next to the jars in `folder`; returns its path."""
    archive = folder / CLASS_ARCHIVE
    archive.unlink(missing_ok=True)
    # Renamed into place: a JVM must not find an incomplete archive.
    part = folder / f".{CLASS_ARCHIVE}.{os.getpid()}"
    try:
        with tempfile.TemporaryDirectory(prefix="streamjoin-") as name:
            _run_a_join(Path(name), part)
        part.replace(archive)
    finally:
        part.unlink(missing_ok=True)
    return archive


def _run_a_join(folder: Path, archive: Path) -> None:
    log = folder / "job.log"
    with EmbeddedKafka(folder / "kafka") as kafka:
        kafka.create_topics([*TOPICS.values(), OUTPUT_TOPIC], partitions=2)
        job = start_child(
            [sys.executable, "-m", "job", "run", SPEC],
            log=log,
            environment=_environment(kafka.bootstrap_servers, folder, archive),
        )
        try:
            _feed(kafka.bootstrap_servers)
            _wait_for_a_result(kafka.bootstrap_servers, log)
        finally:
            stop_child(job, grace_seconds=STOP_SECONDS)
    if not is_whole(archive):
        reason = f"the JVM wrote an incomplete {archive}"
        raise QueryError(f"{reason}:\n{last_lines(log)}", retryable=False)


def is_whole(archive: Path) -> bool:
    """Whether the archive is complete. The JVM writes the beginning of the file last: a killed JVM
    leaves zeros there."""
    if not archive.exists():
        return False
    with archive.open("rb") as content:
        return any(content.read(4))


def _environment(bootstrap_servers: str, folder: Path, archive: Path) -> dict[str, str]:
    return {
        **os.environ,
        "JAVA_HOME": str(java_home()),
        "JDK_JAVA_OPTIONS": f"-XX:ArchiveClassesAtExit={archive} -Xlog:cds=off",
        "KAFKA_BOOTSTRAP_SERVERS": bootstrap_servers,
        "DEMO_CHECKPOINT": str(folder / "checkpoint"),
        "STREAMJOIN_SOCKET": str(folder / "job.sock"),
    }


def _feed(bootstrap_servers: str) -> None:
    """One pair, and a later row of each side that expires the rows before it."""
    producer = Producer({"bootstrap.servers": bootstrap_servers})
    for ad_id, at in ((1, "2024-01-01T00:00:00Z"), (2, "2024-01-01T01:00:00Z")):
        impression = {"ad_id": ad_id, "shown_at": at, "campaign": "any", "cost": 1.0}
        click = {"ad_id": ad_id, "clicked_at": at, "user": "any"}
        produce(producer, TOPICS["left"], json.dumps(impression))
        produce(producer, TOPICS["right"], json.dumps(click))
    producer.flush()


def _wait_for_a_result(bootstrap_servers: str, log: Path) -> None:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": "class-archive",
            "auto.offset.reset": "earliest",
        }
    )
    consumer.subscribe([OUTPUT_TOPIC])
    deadline = time.monotonic() + FIRST_RESULT_SECONDS
    try:
        while (message := consumer.poll(0.2)) is None or message.error():
            if time.monotonic() > deadline:
                reason = f"no result after {FIRST_RESULT_SECONDS:.0f} s"
                raise QueryError(f"{reason}; log of the job:\n{last_lines(log)}", retryable=False)
    finally:
        consumer.close()


def main() -> int:
    return exit_code(lambda: print(f"  {make(jar_folder('spark')).stat().st_size / 1e6:.0f} MB"))


if __name__ == "__main__":
    sys.exit(main())
