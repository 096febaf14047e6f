"""A side that reads two topics: ids, event times and offsets name the topic of each record."""

import json
from pathlib import Path

import pytest
from confluent_kafka import Producer

from deploy.local.kafka import EmbeddedKafka
from job.protocol.status import JobStatus
from tests.integration.jobs import START_SECONDS, Job
from tests.integration.jvms import SharedJvm
from tests.integration.real_time_topics import wait_for_intervals
from tests.integration.topics import consume_all
from tests.polling import wait_until

T0 = 1_700_000_000_000

_SPEC = """
name: {name}
{engine}
kafka: {{bootstrap_servers: "{servers}"}}
left:
  topics: [{name}.eu, {name}.us]
  schema: n BIGINT, t TIMESTAMP
  key: [n]
  event_time: t
  watermark_delay: 10 seconds
  max_event_time_ahead: 10000000 days
right:
  topic: {name}.right
  schema: n BIGINT, t TIMESTAMP
  key: [n]
  event_time: t
  watermark_delay: 10 seconds
  max_event_time_ahead: 10000000 days
join: {{type: left_outer, match_window: {{before: 1 hour, after: 1 hour}}}}
output:
  topic: {name}.out
  columns: {{n: left.n, at: left.record_partition}}
  delivery: exactly_once
dead_letter: {{topic: {name}.dead}}
checkpoint: {checkpoint}
"""


@pytest.mark.parametrize("has_intervals", [False, True], ids=["micro_batch", "real_time"])
def test_results_of_two_topics_name_the_topic_of_each_record_after_a_crash(
    has_intervals: bool, kafka: EmbeddedKafka, tmp_path: Path, jvm: SharedJvm
) -> None:
    join = "several_at_once" if has_intervals else "several"
    real_time = "engine: real_time\nreal_time: {checkpoint_interval: 1 hour}"
    topics = [f"{join}.{part}" for part in ("eu", "us", "right", "out", "dead")]
    kafka.create_topics(topics, partitions=2)
    spec = _SPEC.format(
        name=join,
        engine=real_time if has_intervals else "engine: micro_batch",
        servers=kafka.bootstrap_servers,
        checkpoint=tmp_path / "checkpoint",
    )
    producer = Producer(
        {
            "bootstrap.servers": kafka.bootstrap_servers,
            "log_level": 0,
            "max.in.flight.requests.per.connection": 1,
        }
    )

    def send(topic: str, partition: int, n: int, at_ms: int = 0) -> None:
        value = json.dumps({"n": n, "t": T0 + at_ms})
        producer.produce(f"{join}.{topic}", value.encode(), partition=partition)

    def results() -> list[tuple[int, str]]:
        received = consume_all(kafka.bootstrap_servers, f"{join}.out")
        assert all(each.value["at"] == int(each.result_id.split("/")[1]) for each in received)
        return sorted((each.value["n"], each.result_id) for each in received)

    def event_times(status: JobStatus) -> dict[int, int]:
        left = status.event_times.get("left")
        return {} if left is None else dict(left.partitions)

    with Job(spec, tmp_path, jvm) as job:
        if has_intervals:
            wait_for_intervals(job)
        # The same partition and offset in both topics.
        send("eu", 1, 1)
        send("us", 1, 2, 5_000)
        producer.produce(f"{join}.us", b"no JSON", partition=1)
        producer.flush()
        read = {1: T0, 1025: T0 + 5_000}
        status = job.wait_for(lambda status: read == event_times(status), "both topics are read")
        assert {"left": topics[:2]} == status.topics
        job.kill_tree()

        job.start()
        send("right", 0, 1)
        send("right", 1, 2)
        send("us", 0, 3)
        producer.flush()
        pairs = [
            (1, f"{join}.eu/1/0|{join}.right/0/0"),
            (2, f"{join}.us/1/0|{join}.right/1/0"),
        ]
        wait_until(lambda: pairs == results(), START_SECONDS, "stored rows of both topics match")
        end_ms = 10 * 3_600_000
        for topic, n in (("eu", 9), ("us", 10), ("right", 9)):
            send(topic, 0, n, end_ms)
        producer.flush()
        expected = [
            *pairs,
            (3, f"{join}.us/0/0|"),
            (9, f"{join}.eu/0/0|{join}.right/0/1"),
        ]
        wait_until(lambda: expected == results(), START_SECONDS, "the unmatched row is emitted")
        if has_intervals:
            job.kill_tree()
            job.start()
            # If the repeated interval did not know that row 3 was unmatched, this row would match.
            send("right", 0, 3)
            send("us", 0, 9, end_ms)
            producer.flush()
            expected.append((9, f"{join}.us/0/2|{join}.right/0/1"))
            wait_until(lambda: expected[-1] in results(), START_SECONDS, "a new result is written")
        status = job.wait_for(
            lambda status: status.brokers is not None and status.brokers.left.behind_latest,
            "the brokers were polled",
        )
        assert status.brokers is not None
        assert {0, 1, 1024, 1025} == set(status.brokers.left.behind_latest or {})
        assert 0 == job.terminate()

    assert expected == results()
