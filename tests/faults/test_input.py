"""Records that went before they were read, and topics that went."""

import json
import time
from pathlib import Path

from confluent_kafka import TopicPartition

from deploy.local.kafka import EmbeddedKafka
from job.protocol.status import JobStatus
from tests.faults.rig import Rig
from tests.integration.jobs import START_SECONDS
from tests.polling import wait_until

ROWS = 100


def test_records_deleted_before_they_were_read_are_named_and_there_is_a_way_on(
    kafka: EmbeddedKafka, tmp_path: Path
) -> None:
    rig = Rig(kafka, "retention", tmp_path)
    topic = rig.topic("left")
    with rig.job as job:
        rig.feed(ROWS)
        status = rig.settle()
        before = rig.verdict(status).results
        job.ask("pause")
        job.wait_for_state("PAUSED")
        read = rig.ends(topic)
        rig.feed(ROWS)
        ends = rig.ends(topic)
        until = {partition: (read[partition] + end) // 2 for partition, end in ends.items()}
        lost = [f"{topic} partition {p}: offsets {read[p]} to {until[p] - 1}" for p in until]
        places = [TopicPartition(topic, partition, end) for partition, end in until.items()]
        for place in rig.admin.delete_records(places).values():
            place.result(START_SECONDS)

        job.ask("resume")
        failure = job.wait_for_state("FAILED").last_failure
        assert failure is not None
        assert "retention" == failure.code
        wanted = json.dumps({"left": {str(p): offset for p, offset in until.items()}})
        for said in (*lost, "PATCH /v1/query/offsets", wanted):
            assert said in failure.message, failure.message
        assert before == len(rig.records(rig.topic("out")))

        job.ask("stop")
        job.wait_for_state("STOPPED")
        starts = {"left": until, "right": ends_of(status)["right"]}
        job.ask("reset", starts=starts)
        wait_until(lambda: begun_anew(rig), START_SECONDS, "the checkpoint is put aside")
        job.ask("resume")
        rig.recovered(time.monotonic())
        ids = [record.headers["streamjoin-id"] for record in rig.records(rig.topic("out"))]
        assert len(ids) == len(set(ids)) > before


def test_topic_deleted_and_made_anew_under_a_running_query_is_noticed(
    kafka: EmbeddedKafka, tmp_path: Path
) -> None:
    rig = Rig(kafka, "anew", tmp_path)
    topic = rig.topic("right")
    with rig.job as job:
        rig.feed(ROWS)
        read = ends_of(rig.settle())["right"]
        rig.admin.delete_topics([topic])[topic].result(START_SECONDS)
        wait_until(lambda: topic not in rig.admin.list_topics().topics, START_SECONDS, "it is gone")
        failure = job.wait_for_state("FAILED").last_failure
        assert failure is not None
        assert "topic" == failure.code
        assert f"--create --topic {topic}" in failure.message

        kafka.create_topics([topic], partitions=2)
        job.ask("restart")
        failure = job.wait_for_failure(2)
        assert "retention" == failure.code
        wanted = json.dumps({"right": {str(partition): 0 for partition in read}})
        for said in (f"right.topic {topic} (topic id ", "PATCH /v1/query/offsets", wanted):
            assert said in failure.message, failure.message


def begun_anew(rig: Rig) -> bool:
    status = rig.job.status()
    reset = status.last_reset if status else None
    assert reset is None or reset.error is None, reset.error
    return reset is not None and reset.completed_at is not None


def ends_of(status: JobStatus) -> dict[str, dict[int, int]]:
    """What has been read."""
    assert status.last_batch is not None
    return {
        "left": status.last_batch.left.end_offsets,
        "right": status.last_batch.right.end_offsets,
    }
