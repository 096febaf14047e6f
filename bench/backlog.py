"""The events of a workload in Kafka: produced once, kept in the broker's folder for later runs."""

import hashlib
import json
import time
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NamedTuple

from confluent_kafka import Producer

from bench import load
from bench.load import (
    BY_KEY,
    Click,
    Impression,
    RowSet,
    Workload,
    click_alone,
    closing_events,
    closing_time,
    joined,
    partition_of,
    row_set,
)
from bench.topics import delete_topics, topic_names
from deploy.local.kafka import EmbeddedKafka
from job.errors import BrokerError
from job.kafka import clients

_PRODUCE_SECONDS = 300.0
# Number of records between two calls of librdkafka's poll.
_SERVE_EVERY = 10_000


@dataclass(frozen=True)
class Backlog:
    left_topic: str
    right_topic: str
    records: int
    """Records of both topics together, without the closing ones."""
    expected: RowSet
    """Results of a join of both topics."""
    clicks: RowSet
    """Results of a program that joins nothing."""
    closing_time: int
    """Event time of the closing events, in epoch milliseconds; see `close`."""


class Addressed(NamedTuple):
    topic: str
    event: Impression | Click
    partition: int = BY_KEY


def backlog(workload: Workload, records: int, kafka: EmbeddedKafka, folder: Path) -> Backlog:
    """The backlog of `records` events a side: the one recorded in `folder`, or a new one. A backlog
    is recorded only once all its records are in Kafka; topics of unfinished or outdated backlogs
    are deleted."""
    note = folder / f"{workload.name}-{records}-{_version(workload)}.json"
    folder.mkdir(parents=True, exist_ok=True)
    if not note.exists():
        new = create_backlog(workload, *load.events(workload, records), kafka)
        note.write_text(json.dumps(asdict(new)))
    return _read_note(note)


def delete_stray_topics(kafka: EmbeddedKafka, folder: Path) -> None:
    """Delete the topics of interrupted runs and of former versions of the load."""
    current = {_version(workload) for workload in load.WORKLOADS.values()}
    kept: set[str] = set()
    for note in folder.glob("*.json"):
        if note.stem.rsplit("-", 1)[1] in current:
            noted = _read_note(note)
            kept |= {noted.left_topic, noted.right_topic}
        else:
            note.unlink()
    delete_topics(kafka, [name for name in topic_names(kafka) if name not in kept])


def _version(workload: Workload) -> str:
    """Changes with everything that can change the events."""
    source = Path(load.__file__).read_bytes()
    return hashlib.sha256(source + repr(workload).encode()).hexdigest()[:12]


def _read_note(note: Path) -> Backlog:
    fields = json.loads(note.read_text())
    sets = {name: RowSet(**fields[name]) for name in ("expected", "clicks")}
    return Backlog(**{**fields, **sets})


def create_backlog(
    workload: Workload,
    impressions: Sequence[Impression],
    clicks: Sequence[Click],
    kafka: EmbeddedKafka,
) -> Backlog:
    """Produce a new backlog of these events, without recording it."""
    name = f"{workload.name}-{uuid.uuid4().hex[:8]}"
    left, right = f"{name}-left", f"{name}-right"
    kafka.create_topics([left, right], partitions=workload.partitions)
    events = _interleaved(left, impressions, right, clicks)
    produce(
        kafka,
        (message._replace(partition=partition_of(message.event, workload)) for message in events),
    )
    backlog = Backlog(
        left_topic=left,
        right_topic=right,
        records=len(impressions) + len(clicks),
        expected=row_set(joined(impressions, clicks, workload)),
        clicks=row_set(map(click_alone, clicks)),
        closing_time=closing_time(impressions, workload),
    )
    if workload.has_unmatched:
        close(backlog, workload, kafka)
    return backlog


def close(backlog: Backlog, workload: Workload, kafka: EmbeddedKafka) -> None:
    """Produce the closing events, which expire the last unmatched rows: once is enough for Spark
    and Flink. Kafka Streams emits them once a second, and only when a record arrives."""
    produce(kafka, _closing(backlog, workload))


def _closing(backlog: Backlog, workload: Workload) -> Iterator[Addressed]:
    for partition, shown, clicked in closing_events(backlog.closing_time, workload):
        yield Addressed(backlog.left_topic, shown, partition)
        yield Addressed(backlog.right_topic, clicked, partition)


def _interleaved(
    left: str, impressions: Sequence[Impression], right: str, clicks: Sequence[Click]
) -> Iterator[Addressed]:
    # In turns, independent of their numbers: a reader reads the same range of event time from both.
    sent = 0
    for number, shown in enumerate(impressions, start=1):
        yield Addressed(left, shown)
        due = number * len(clicks) // len(impressions)
        yield from (Addressed(right, clicked) for clicked in clicks[sent:due])
        sent = due


def produce(
    kafka: EmbeddedKafka, events: Iterator[Addressed], seconds: float = _PRODUCE_SECONDS
) -> None:
    """Produce in order within each partition; raises BrokerError if it takes too long."""
    producer = Producer(
        {
            "bootstrap.servers": kafka.bootstrap_servers,
            # Idempotence keeps the order within each partition, without repetition.
            "enable.idempotence": True,
            "log_level": 3,
            "compression.type": "lz4",
            "linger.ms": 50,
            "queue.buffering.max.messages": 500_000,
        }
    )
    deadline = time.monotonic() + seconds
    for count, event in enumerate(events):
        key, value = str(event.event.ad_id), event.event.value()
        clients.produce(producer, event.topic, value, key, event.partition, room_seconds=seconds)
        if count % _SERVE_EVERY == 0:
            producer.poll(0)
    if unsent := producer.flush(max(0.0, deadline - time.monotonic())):
        raise BrokerError(f"the broker did not take the last {unsent} records in time")
