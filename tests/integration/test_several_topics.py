"""A side that reads two topics: ids, event times and offsets name the topic of each record."""

import json
from pathlib import Path

from confluent_kafka import Producer

from deploy.local.kafka import EmbeddedKafka
from tests.integration.jobs import START_SECONDS, Job
from tests.integration.jvms import SharedJvm
from tests.integration.topics import consume_all
from tests.polling import wait_until

T0 = 1_700_000_000_000

_SPEC = """
name: several
kafka: {{bootstrap_servers: "{servers}"}}
left:
  topics: [several.eu, several.us]
  schema: n BIGINT, t TIMESTAMP
  key: [n]
  event_time: t
  watermark_delay: 10 seconds
  max_event_time_ahead: 10000000 days
right:
  topic: several.right
  schema: n BIGINT, t TIMESTAMP
  key: [n]
  event_time: t
  watermark_delay: 10 seconds
  max_event_time_ahead: 10000000 days
join: {{type: left_outer, match_window: {{before: 1 hour, after: 1 hour}}}}
output:
  topic: several.out
  columns: {{n: left.n, at: left.record_partition}}
  delivery: exactly_once
dead_letter: {{topic: several.dead}}
checkpoint: {checkpoint}
"""


def test_results_of_two_topics_name_the_topic_of_each_record_after_a_crash(
    kafka: EmbeddedKafka, tmp_path: Path, jvm: SharedJvm
) -> None:
    kafka.create_topics(
        ["several.eu", "several.us", "several.right", "several.out", "several.dead"], partitions=2
    )
    spec = _SPEC.format(servers=kafka.bootstrap_servers, checkpoint=tmp_path / "checkpoint")
    producer = Producer(
        {
            "bootstrap.servers": kafka.bootstrap_servers,
            "log_level": 0,
            "max.in.flight.requests.per.connection": 1,
        }
    )

    def send(topic: str, partition: int, n: int, at_ms: int = 0) -> None:
        value = json.dumps({"n": n, "t": T0 + at_ms})
        producer.produce(f"several.{topic}", value.encode(), partition=partition)

    def ids() -> dict[int, str]:
        received = consume_all(kafka.bootstrap_servers, "several.out")
        assert all(each.value["at"] == int(each.result_id.split("/")[1]) for each in received)
        return {each.value["n"]: each.result_id for each in received}

    with Job(spec, tmp_path, jvm) as job:
        # The same partition and offset in both topics.
        send("eu", 1, 1)
        send("us", 1, 2, 5_000)
        producer.produce("several.us", b"no JSON", partition=1)
        producer.flush()
        status = job.wait_for_offsets(left=3, right=0)
        assert {1: T0, 1025: T0 + 5_000} == dict(status.event_times["left"].partitions)
        assert {"left": ["several.eu", "several.us"]} == status.topics
        job.kill_tree()

        job.start()
        send("right", 0, 1)
        send("right", 1, 2)
        send("us", 0, 3)
        producer.flush()
        wait_until(
            lambda: {1, 2} <= ids().keys(), START_SECONDS, "stored rows of both topics match"
        )
        end_ms = 10 * 3_600_000
        for topic, n in (("eu", 9), ("us", 10), ("right", 9)):
            send(topic, 0, n, end_ms)
        producer.flush()
        wait_until(lambda: len(ids()) == 4, START_SECONDS, "the unmatched row is emitted")
        status = job.wait_for(
            lambda status: status.brokers is not None and status.brokers.left.behind_latest,
            "the brokers were polled",
        )
        assert status.brokers is not None
        assert {0, 1, 1024, 1025} == set(status.brokers.left.behind_latest or {})
        assert 0 == job.terminate()

    assert {
        1: "several.eu/1/0|several.right/0/0",
        2: "several.us/1/0|several.right/1/0",
        3: "several.us/0/0|",
        9: "several.eu/0/0|several.right/0/1",
    } == ids()
