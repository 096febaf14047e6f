"""A side reads the topics that match a pattern, and a restart adds new topics."""

import json
from pathlib import Path

from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from deploy.local.kafka import EmbeddedKafka
from job.protocol.status import JobStatus
from tests.integration.jobs import START_SECONDS, Job
from tests.integration.jvms import SharedJvm
from tests.integration.topics import consume_all
from tests.polling import wait_until

T0 = 1_700_000_000_000

# The pattern also matches the topics that the join writes.
_SPEC = """
name: pattern
kafka: {{bootstrap_servers: "{servers}"}}
left:
  topic_pattern: "pattern\\\\.l.*|pattern\\\\.join\\\\..*"
  schema: n BIGINT, t TIMESTAMP
  key: [n]
  event_time: t
  watermark_delay: 10 seconds
  max_event_time_ahead: 10000000 days
right:
  topic: pattern.right
  schema: n BIGINT, t TIMESTAMP
  key: [n]
  event_time: t
  watermark_delay: 10 seconds
  max_event_time_ahead: 10000000 days
join: {{type: inner, match_window: {{before: 1 hour, after: 1 hour}}}}
output:
  topic: pattern.join.out
  columns: {{n: left.n}}
  delivery: exactly_once
  commit_topic: pattern.join.commits
dead_letter: {{topic: pattern.join.dead}}
checkpoint: {checkpoint}
"""


def test_new_topic_of_a_pattern_is_reported_and_read_after_a_restart(
    kafka: EmbeddedKafka, tmp_path: Path, jvm: SharedJvm
) -> None:
    servers = kafka.bootstrap_servers
    kafka.create_topics(
        ["pattern.lus", "pattern.right", "pattern.join.out", "pattern.join.dead"], partitions=2
    )
    spec = _SPEC.format(servers=servers, checkpoint=tmp_path / "checkpoint")
    producer = Producer(
        {"bootstrap.servers": servers, "log_level": 0, "max.in.flight.requests.per.connection": 1}
    )

    def send(topic: str, partition: int, n: int) -> None:
        value = json.dumps({"n": n, "t": T0}).encode()
        producer.produce(f"pattern.{topic}", value, partition=partition)

    def ids() -> set[str]:
        return {each.result_id for each in consume_all(servers, "pattern.join.out")}

    def logged() -> list[tuple[str, list[str]]]:
        lines = (line for line in job.log.read_text().splitlines() if '"topics_' in line)
        return [(entry["event"], entry["topics"]) for entry in map(json.loads, lines)]

    def new_topics(status: JobStatus) -> list[str]:
        return [] if status.brokers is None else status.brokers.left.new_topics

    with Job(spec, tmp_path, jvm) as job:
        send("lus", 1, 1)
        producer.flush()
        status = job.wait_for_offsets(left=1, right=0)
        assert {"left": ["pattern.lus"]} == status.topics

        # The name is before that of the first topic, whose partitions keep their numbers.
        kafka.create_topics(["pattern.leu"], partitions=2)
        send("leu", 1, 2)
        producer.flush()
        job.wait_for(lambda status: ["pattern.leu"] == new_topics(status), "it is reported")
        job.ask("restart")
        status = job.wait_for_offsets(left=2, right=0)
        assert {"left": ["pattern.lus", "pattern.leu"]} == status.topics
        send("right", 0, 1)
        send("right", 1, 2)
        producer.flush()
        expected = {
            "pattern.lus/1/0|pattern.right/0/0",
            "pattern.leu/1/0|pattern.right/1/0",
        }
        wait_until(lambda: expected == ids(), START_SECONDS, "rows of both topics match")
        job.wait_for(lambda status: [] == new_topics(status), "no topic is new")
        assert [
            ("topics_added", ["pattern.lus"]),
            ("topics_not_read", ["pattern.leu"]),
            ("topics_added", ["pattern.leu"]),
        ] == logged()

        kafka.create_topics(["pattern.lbr"], partitions=1)
        for n in (3, 4):
            send("lbr", 0, n)
        producer.flush()
        admin = AdminClient({"bootstrap.servers": servers})
        for deleted in admin.delete_records([TopicPartition("pattern.lbr", 0, 1)]).values():
            deleted.result(START_SECONDS)
        job.ask("restart")
        failure = job.wait_for_failure(1)
        assert "retention" == failure.code
        assert "pattern.lbr partition 0: offsets 0 to 0 (1 record)" in failure.message
        assert "(?!pattern.lbr$)" in failure.message

        # The refused topic was not frozen: a pattern that excludes it is accepted.
        job.terminate()
        job.spec_file.write_text(spec.replace("pattern\\\\.l.*", "(?!pattern.lbr$)pattern\\\\.l.*"))
        job.start()
        send("leu", 0, 1)
        producer.flush()
        expected |= {"pattern.leu/0/0|pattern.right/0/0"}
        wait_until(lambda: expected == ids(), START_SECONDS, "the query continues")
