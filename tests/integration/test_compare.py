"""`streamjoin compare` on real topics."""

import json
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from typer.testing import CliRunner, Result

from deploy.local.kafka import EmbeddedKafka
from job.__main__ import app
from job.instants import from_epoch_ms, utc_text
from tests.integration.topics import READ_SECONDS, Sent, produce

SPEC = """
name: compared
kafka: {{bootstrap_servers: "{servers}"}}
left: {{topic: {name}.l, schema: "k STRING, t TIMESTAMP", key: [k], event_time: t, watermark_delay: 1 second}}
right: {{topic: {name}.r, schema: "k STRING, t TIMESTAMP", key: [k], event_time: t, watermark_delay: 1 second}}
join: {{type: left_outer, match_window: {{before: 0 seconds, after: 1 second}}}}
output: {{topic: {topic}, columns: {{k: left.k}}}}
checkpoint: /checkpoints/compared
on_bad_record: drop
"""  # noqa: E501


# Kafka refuses timestamps in the future, and deletes old records by their timestamps.
T0 = (int(time.time()) - 3_600) * 1_000


class Outputs:
    def __init__(self, kafka: EmbeddedKafka, name: str, folder: Path) -> None:
        self.name, self.servers = name, kafka.bootstrap_servers
        self.topics = [f"{name}.first", f"{name}.second"]
        self.files = [folder / "first.yaml", folder / "second.yaml"]
        kafka.create_topics([*self.topics, f"{name}.l", f"{name}.r"], partitions=2)
        for file, topic in zip(self.files, self.topics, strict=True):
            file.write_text(SPEC.format(servers=self.servers, name=name, topic=topic))

    def pair(self, number: int, value: Any = 0, key: str | None = "k") -> Sent:
        headers = {"streamjoin-id": f"{self.name}.l/0/{number}|{self.name}.r/0/{number}"}
        return Sent({"k": value}, key, headers)

    def write(self, first: Iterable[Sent], second: Iterable[Sent]) -> None:
        for topic, records in zip(self.topics, (first, second), strict=True):
            produce(self.servers, topic, records)

    def compare(self, *options: str) -> Result:
        return CliRunner().invoke(app, ["compare", *map(str, self.files), *options])

    def counts(self, *options: str) -> dict[str, int]:
        """Those that are not 0."""
        counts = json.loads(self.compare("--json", *options).stdout)["counts"]
        return {kind: count for kind, count in counts.items() if count}


def test_outputs_are_compared_by_id_up_to_their_ends(kafka: EmbeddedKafka, tmp_path: Path) -> None:
    outputs = Outputs(kafka, "compared_ends", tmp_path)
    common = [outputs.pair(n, key=f"key {n}") for n in range(20)]
    outputs.write(common, [*reversed(common), outputs.pair(20)])

    equal = outputs.compare()
    assert (0, True) == (equal.exit_code, "The outputs are equal." in equal.output), equal.output
    assert {"equal": 20, "newer_second": 1} == outputs.counts()
    assert 1 == outputs.compare("--until", "2100-01-01T00:00:00Z").exit_code

    # What an aborted transaction has written is no result.
    producer = Producer({"bootstrap.servers": outputs.servers, "transactional.id": "compared"})
    producer.init_transactions(READ_SECONDS)
    producer.begin_transaction()
    aborted = outputs.pair(3, "aborted")
    producer.produce(outputs.topics[0], aborted.payload, headers=dict(aborted.headers or {}))
    producer.flush(READ_SECONDS)
    producer.abort_transaction(READ_SECONDS)
    assert {"equal": 20, "newer_second": 1} == outputs.counts()

    outputs.write([outputs.pair(5), outputs.pair(6, 0, "key 6")], [Sent({"k": 0})])
    differ = outputs.compare("--json")
    facts = json.loads(differ.stdout)
    assert (1, False) == (differ.exit_code, facts["equal"])
    assert 1 == facts["second"]["without_id"]
    assert {
        "equal": 19,
        "different": 1,
        "duplicates_first": 2,
        "newer_second": 1,
    } == outputs.counts()


def test_since_and_until_select_results_by_their_input_records(
    kafka: EmbeddedKafka, tmp_path: Path
) -> None:
    outputs = Outputs(kafka, "compared_span", tmp_path)
    producer = Producer({"bootstrap.servers": outputs.servers, "log_level": 0})
    for topic in ("l", "r"):
        for second in range(10):
            at = T0 + second * 1_000
            producer.produce(f"{outputs.name}.{topic}", b"{}", partition=0, timestamp=at)
    assert 0 == producer.flush(READ_SECONDS)
    outputs.write(map(outputs.pair, range(10)), map(outputs.pair, (0, 3, 4, 5)))

    from_3, from_6, from_7 = (utc_text(from_epoch_ms(T0 + n * 1_000)) for n in (3, 6, 7))
    assert {"equal": 4, "only_first": 2, "newer_first": 4} == outputs.counts()
    assert {"equal": 3, "newer_first": 4} == outputs.counts("--since", from_3)
    assert {"equal": 4, "only_first": 2} == outputs.counts("--until", from_6)
    spans = ("--since", from_3, "--until", from_6)
    assert {"equal": 3} == outputs.counts(*spans)
    assert 0 == outputs.compare(*spans).exit_code
    assert 1 == outputs.compare("--until", from_7).exit_code


def test_missing_output_topic_is_an_error(kafka: EmbeddedKafka, tmp_path: Path) -> None:
    outputs = Outputs(kafka, "compared_missing", tmp_path)
    text = outputs.files[1].read_text().replace(outputs.topics[1], "compared_missing.other")
    outputs.files[1].write_text(text)

    done = outputs.compare()

    assert 1 == done.exit_code
    assert "output topic compared_missing.other cannot be read" in done.output
