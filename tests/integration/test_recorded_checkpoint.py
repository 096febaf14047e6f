"""A checkpoint that an earlier commit wrote: the job must continue from it.

tests/golden/checkpoint has one for each engine: its spec, its files and the records of its commit
topic. UPDATE_GOLDEN=1 records them again, which is allowed only together with a new format version.
"""

import json
import os
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from deploy.local.kafka import EmbeddedKafka
from job.kafka.clients import NewTopic, admin, read_to_end
from job.kafka.topic_ids import topics
from job.spec.engine import Engine
from tests.integration.jobs import START_SECONDS, Job
from tests.integration.jvms import SharedJvm
from tests.integration.real_time_topics import wait_for_intervals
from tests.integration.topics import READ_SECONDS, consume_all
from tests.polling import wait_until

GOLDEN = Path(__file__).parents[1] / "golden" / "checkpoint"
T0 = 1_700_000_000_000
NAMES = {Engine.MICRO_BATCH: "recorded", Engine.REAL_TIME: "recorded_rt"}


class Recorded:
    """The topics of a recorded checkpoint on one broker."""

    def __init__(self, kafka: EmbeddedKafka, name: str) -> None:
        *self._topics, self._commits = self._names = [
            f"{name}.{part}" for part in ("left", "right", "out", "commits")
        ]
        self.output = self._topics[2]
        self._name = name
        self.settings = {"bootstrap.servers": kafka.bootstrap_servers}
        self._client = admin(self.settings)
        created = self._client.create_topics(
            [
                *(NewTopic(topic, 2) for topic in self._topics),
                NewTopic(self._commits, 3, config={"cleanup.policy": "compact"}),
            ]
        )
        for future in created.values():
            future.result(START_SECONDS)

    def send(self, side: str, numbers: range) -> None:
        """Each number to the same partition as in the recording."""
        rows = [(number % 2, json.dumps({"n": number, "t": T0 + number})) for number in numbers]
        producer = Producer(
            {**self.settings, "log_level": 0, "max.in.flight.requests.per.connection": 1}
        )
        for partition, value in rows:
            producer.produce(f"{self._name}.{side}", value, None, partition)
        assert 0 == producer.flush(READ_SECONDS)

    def send_commits(self, records: list[dict[str, Any]]) -> None:
        """Each marker in a transaction, because readers expect a control record after it."""
        settings = {**self.settings, "transactional.id": "restores-markers", "log_level": 0}
        producer = Producer(settings)
        producer.init_transactions(READ_SECONDS)
        for marker in records:
            producer.begin_transaction()
            producer.produce(self._commits, marker["value"], marker["key"], marker["partition"])
            producer.commit_transaction(READ_SECONDS)

    def commits(self) -> list[dict[str, Any]]:
        return [
            {
                "partition": message.partition(),
                "key": (message.key() or b"").decode(),
                "value": (message.value() or b"").decode(),
            }
            for message in read_to_end(self.settings, self._commits, "reads", READ_SECONDS)
        ]

    def ids(self) -> dict[str, str]:
        return {name: str(topic.id) for name, topic in topics(self._client, self._names).items()}


@pytest.mark.parametrize("engine", list(Engine))
def test_job_continues_the_recorded_checkpoint(
    engine: Engine,
    kafka: EmbeddedKafka,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    jvm: SharedJvm,
) -> None:
    """The real-time engine needs more task slots than a shared JVM has."""
    golden = GOLDEN / engine
    monkeypatch.setenv("RECORDED_SERVERS", kafka.bootstrap_servers)
    monkeypatch.setenv("RECORDED_CHECKPOINT", str(tmp_path / "checkpoint"))
    spec = (golden / "join.yaml").read_text()
    job = Job(spec, tmp_path, jvm if engine is Engine.MICRO_BATCH else None)
    recorded = Recorded(kafka, NAMES[engine])
    recorded.send("left", range(3))
    recorded.send("right", range(2))
    if os.environ.get("UPDATE_GOLDEN"):
        record(recorded, job, tmp_path / "checkpoint", golden)
        return

    shutil.copytree(golden / "files", tmp_path / "checkpoint")
    give_new_topic_ids(tmp_path / "checkpoint" / "topics.json", recorded.ids())
    give_new_folder(tmp_path / "checkpoint")
    recorded.send_commits(json.loads((golden / "commits.json").read_text()))
    with job:
        recorded.send("right", range(2, 3))
        job.wait_for_offsets(left=3, right=3)
        wait_until(
            lambda: consume_all(kafka.bootstrap_servers, recorded.output),
            START_SECONDS,
            "the result is out",
        )

    # The left row of 2 is in the recorded state. 0 and 1 were delivered before the recording.
    results = consume_all(kafka.bootstrap_servers, recorded.output)
    assert [2] == [result.value["n"] for result in results]


def give_new_topic_ids(path: Path, ids: dict[str, str]) -> None:
    """Kafka chooses the ids of topics, so those in the recording are of topics that are gone."""
    document = json.loads(path.read_text())
    assert set(ids) == set(document["topics"])
    path.write_text(json.dumps({**document, "topics": ids}))
    (path.parent / f".{path.name}.crc").unlink(missing_ok=True)


def give_new_folder(checkpoint: Path) -> None:
    """Spark writes the path of the state's schema into the metadata of the operator."""
    for path in checkpoint.glob("query/state/*/_metadata/v2/0"):
        text = re.sub(
            '"file:[^"]*/query/state/', f'"file:{checkpoint}/query/state/', path.read_text()
        )
        path.write_text(text)
        (path.parent / ".0.crc").unlink()


def record(recorded: Recorded, job: Job, checkpoint: Path, golden: Path) -> None:
    with job:
        status = job.wait_for_offsets(left=3, right=2)
        if status.phase is not None:
            wait_for_intervals(job)
        for verb, state in (("pause", "PAUSED"), ("resume", "RUNNING")):
            job.ask(verb)
            job.wait_for_state(state)
        assert 0 == job.terminate()
    shutil.rmtree(golden / "files", ignore_errors=True)
    shutil.copytree(checkpoint, golden / "files")
    (golden / "commits.json").write_text(json.dumps(recorded.commits(), indent=2) + "\n")
