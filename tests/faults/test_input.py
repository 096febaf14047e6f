"""Records that were deleted before they were read, and topics that were deleted."""

import json
import time
from pathlib import Path

from confluent_kafka import TopicPartition

from deploy.local.kafka import EmbeddedKafka
from job.protocol.status import JobStatus
from tests.faults.harness import Harness
from tests.integration.jobs import START_SECONDS, Job
from tests.integration.jvms import SharedJvm
from tests.polling import wait_until

ROWS = 100


def test_records_deleted_before_they_were_read_are_named_with_the_way_to_continue(
    kafka: EmbeddedKafka, tmp_path: Path, jvm: SharedJvm
) -> None:
    harness = Harness(kafka, "retention", tmp_path, jvm=jvm)
    topic = harness.topic("left")
    with harness.job as job:
        harness.feed(ROWS)
        harness.check(harness.settle())
        harness.send_row("left", "kept")
        harness.recovered(time.monotonic())
        job.ask("pause")
        job.wait_for_state("PAUSED")
        before = len(harness.records(harness.topic("out")))
        read = harness.ends(topic)
        harness.feed(ROWS)
        ends = harness.ends(topic)
        until = {partition: (read[partition] + end) // 2 for partition, end in ends.items()}
        lost = [f"{topic} partition {p}: offsets {read[p]} to {until[p] - 1}" for p in until]
        places = [TopicPartition(topic, partition, end) for partition, end in until.items()]
        for place in harness.admin.delete_records(places).values():
            place.result(START_SECONDS)

        job.ask("resume")
        failure = job.wait_for_state("FAILED").last_failure
        assert failure is not None
        assert "retention" == failure.code
        offsets = ",".join(f"{p}={offset}" for p, offset in until.items())
        reset = f"streamjoin reset {job.spec_file} --left {offsets}"
        for part in (*lost, "checkpoint skip-gap", reset):
            assert part in failure.message, failure.message
        assert before == len(harness.records(harness.topic("out")))

        job.ask("stop")
        job.wait_for_state("STOPPED")
        lost_text = "Kafka has deleted unread records"
        wait_until(lambda: lost_text in diagnosis(job), START_SECONDS, "the brokers are polled")
        skipped = job.command("checkpoint", "skip-gap", str(job.spec_file), "--yes")
        assert 0 == skipped.returncode, skipped.stderr
        assert all(each in skipped.stdout for each in lost), skipped.stdout
        assert lost_text not in diagnosis(job)
        job.ask("resume")
        harness.send_row("right", "kept")
        wait_until(lambda: kept_pairs(harness), START_SECONDS, "the row in state is joined")
        status = job.wait_for_state("RUNNING")
        count = sum(until[partition] - offset for partition, offset in read.items())
        assert count == status.totals.left.skipped_records
        ids = [record.headers["streamjoin-id"] for record in harness.records(harness.topic("out"))]
        assert len(ids) == len(set(ids)) > before


def diagnosis(job: Job) -> str:
    status = job.status()
    assert status is not None
    return status.diagnosis


def kept_pairs(harness: Harness) -> int:
    """Results of the left row that was in state and its right row."""
    results = [each for each in harness.records(harness.topic("out")) if each.key == b"kept"]
    return sum(None not in json.loads(each.value or b"{}").values() for each in results)


def test_topic_recreated_under_a_running_query_is_detected(
    kafka: EmbeddedKafka, tmp_path: Path, jvm: SharedJvm
) -> None:
    harness = Harness(kafka, "recreated", tmp_path, jvm=jvm)
    topic = harness.topic("right")
    with harness.job as job:
        harness.feed(ROWS)
        read = ends_of(harness.settle())["right"]
        harness.admin.delete_topics([topic])[topic].result(START_SECONDS)
        wait_until(
            lambda: topic not in harness.admin.list_topics().topics, START_SECONDS, "it is gone"
        )
        failure = job.wait_for_state("FAILED").last_failure
        assert failure is not None
        assert "topic" == failure.code
        assert f"--create --topic {topic}" in failure.message

        kafka.create_topics([topic], partitions=2)
        job.ask("restart")
        failure = job.wait_for_failure(2)
        assert "retention" == failure.code
        offsets = ",".join(f"{number}=0" for number in read)
        wanted = f"streamjoin reset {job.spec_file} --right {offsets}"
        for part in (f"right.topic {topic} (topic id ", wanted):
            assert part in failure.message, failure.message


def ends_of(status: JobStatus) -> dict[str, dict[int, int]]:
    """The offsets that have been read."""
    assert status.last_batch is not None
    return {
        "left": status.last_batch.left.end_offsets,
        "right": status.last_batch.right.end_offsets,
    }
