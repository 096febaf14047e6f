"""`streamjoin check` on real topics, without a job."""

import json
from typing import Any

from confluent_kafka import Producer

from deploy.local.kafka import EmbeddedKafka
from job.check.checker import Report, check
from job.kafka.security import kafka_access
from job.plan.capacity import AvailableResources
from tests.sql_worker import ROWS, SQL
from tests.unit.specs import plan

SECONDS = 30.0
T = 1_709_287_207_000


def checked(kafka: EmbeddedKafka, **changes: Any) -> Report:
    made = plan(kafka={"bootstrap_servers": kafka.bootstrap_servers}, **changes)
    access = kafka_access(made.bootstrap_servers, None)
    return check(made, access, SQL, ROWS, AvailableResources(2, None, None))


def produce(kafka: EmbeddedKafka, topic: str, *values: Any) -> None:
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "log_level": 0})
    for index, value in enumerate(values):
        text = value if isinstance(value, str) else json.dumps(value)
        producer.produce(topic, text, "key", partition=0, timestamp=T + 1_000 * index)
    assert 0 == producer.flush(SECONDS)


def test_check_reports_what_topics_and_records_lack(kafka: EmbeddedKafka) -> None:
    names = {"left__topic": "check_left", "right__topic": "check_right"}
    names |= {"name": "check", "output__topic": "check_out", "output__delivery": "exactly_once"}
    missing = checked(kafka, **names)
    assert missing.has_problems
    assert "`streamjoin topics create SPEC --inputs`" in missing.findings[0].text

    kafka.create_topics(["check_left"], partitions=2, config={"retention.ms": "60000000"})
    kafka.create_topics(["check_right"], partitions=1, config={"cleanup.policy": "compact"})
    rows = [{"ad_id": n, "shown_at": T + 1_000 * n, "Campaign": "x"} for n in range(20)]
    produce(kafka, "check_left", *rows, "not JSON")
    produce(kafka, "check_right", {"ad_id": 3, "clicked_at": T // 1_000})

    without_output = checked(kafka, **names)
    assert "`streamjoin topics create SPEC`, or" in without_output.findings[0].text
    assert without_output.measured.keys() == {"left", "right"}

    kafka.create_topics(["check_out"], partitions=1)
    report = checked(kafka, **names, engine="real_time")

    texts = [f"{each.level} {each.about}: {each.text}" for each in report.findings]
    for start in (
        "info check_left: left input, 2 partitions",
        "warning check_left: 1 of 21 records are bad (malformed_json), e.g. 0/20: the value is not",
        "warning check_left: column campaign is null in all 20 records: the records have Campaign",
        "info check_left: about 1 records/s; rows are up to 0.0 s out of order",
        "warning check_right: is compacted",
        "warning check_right: 1 of 1 records are bad (absurd_event_time), e.g. 0/0: field clicked",
        "problem check_right: all 1 records of the sample are bad",
        "info check_out: output, 1 partition",
        "info task slots: an interval needs 5 at the same time: 2 for the left topic, 1 for",
    ):
        assert any(text.startswith(start) for text in texts), (start, texts)
    assert "as seconds it is 2024-03-01T10:00:07Z" in " ".join(texts)
    lines = list(report.lines)
    assert lines[0].startswith("PROBLEM  check_right: all 1 records")
    assert lines[-1].startswith("not ready: 1 problem, ")
