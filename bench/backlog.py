"""A workload's events, already in Kafka: made once, kept in the broker's folder for later runs."""

import hashlib
import json
import time
import uuid
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import zip_longest
from pathlib import Path

from confluent_kafka import Producer

from bench import load
from bench.load import Click, Impression, RowSet, Workload, joined, row_set
from bench.topics import delete_topics, topic_names
from deploy.local.kafka import EmbeddedKafka
from job.errors import BrokerError

_PRODUCE_SECONDS = 300.0
# Let librdkafka serve its queue this often.
_SERVE_EVERY = 10_000


@dataclass(frozen=True)
class Backlog:
    left_topic: str
    right_topic: str
    records: int
    """In both topics together."""
    expected: RowSet


def backlog(workload: Workload, records: int, kafka: EmbeddedKafka, folder: Path) -> Backlog:
    """The backlog of `records` events a side: the one noted in `folder`, or a new one.

    It is noted only once all its records are in Kafka; topics of unfinished or outdated backlogs
    are deleted.
    """
    note = folder / f"{workload.name}-{records}-{_version(workload)}.json"
    folder.mkdir(parents=True, exist_ok=True)
    if not note.exists():
        made = _make(workload, records, kafka)
        note.write_text(json.dumps(asdict(made)))
    return _noted(note)


def delete_stray_topics(kafka: EmbeddedKafka, folder: Path) -> None:
    """Delete what interrupted runs and former versions of the load have left in the broker."""
    current = {_version(workload) for workload in load.WORKLOADS.values()}
    kept: set[str] = set()
    for note in folder.glob("*.json"):
        if note.stem.rsplit("-", 1)[1] in current:
            found = _noted(note)
            kept |= {found.left_topic, found.right_topic}
        else:
            note.unlink()
    delete_topics(kafka, [name for name in topic_names(kafka) if name not in kept])


def _version(workload: Workload) -> str:
    """Changes with whatever may change the events."""
    source = Path(load.__file__).read_bytes()
    return hashlib.sha256(source + repr(workload).encode()).hexdigest()[:12]


def _noted(note: Path) -> Backlog:
    fields = json.loads(note.read_text())
    return Backlog(**{**fields, "expected": RowSet(**fields["expected"])})


def _make(workload: Workload, records: int, kafka: EmbeddedKafka) -> Backlog:
    impressions, clicks = load.events(workload, records)
    name = f"{workload.name}-{uuid.uuid4().hex[:8]}"
    left, right = f"{name}-left", f"{name}-right"
    kafka.create_topics([left, right], partitions=workload.partitions)
    _produce(kafka, _interleaved(left, impressions, right, clicks))
    return Backlog(
        left_topic=left,
        right_topic=right,
        records=len(impressions) + len(clicks),
        expected=row_set(joined(impressions, clicks, workload)),
    )


def _interleaved(
    left: str, impressions: list[Impression], right: str, clicks: list[Click]
) -> Iterator[tuple[str, Impression | Click]]:
    for shown, clicked in zip_longest(impressions, clicks):
        if shown is not None:
            yield left, shown
        if clicked is not None:
            yield right, clicked


def _produce(kafka: EmbeddedKafka, events: Iterator[tuple[str, Impression | Click]]) -> None:
    producer = Producer(
        {
            "bootstrap.servers": kafka.bootstrap_servers,
            # Idempotence keeps each partition's records in their order, without repetition.
            "enable.idempotence": True,
            "log_level": 3,
            "compression.type": "lz4",
            "linger.ms": 50,
            "queue.buffering.max.messages": 500_000,
        }
    )
    deadline = time.monotonic() + _PRODUCE_SECONDS
    for count, (topic, event) in enumerate(events):
        _enqueue(producer, topic, event, deadline)
        if count % _SERVE_EVERY == 0:
            producer.poll(0)
    if left_behind := producer.flush(max(0.0, deadline - time.monotonic())):
        raise BrokerError(f"the broker did not take the last {left_behind} records in time")


def _enqueue(producer: Producer, topic: str, event: Impression | Click, deadline: float) -> None:
    while True:
        try:
            producer.produce(topic, key=str(event.ad_id), value=event.value())
        except BufferError:
            if time.monotonic() > deadline:
                raise
            producer.poll(0.1)
        else:
            return
