"""Joins that are changed while they run: topics, jobs, and the results computed by nested loops."""

import json
import subprocess
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import Producer

from deploy.local.kafka import EmbeddedKafka
from job.spec.engine import Engine
from job.spec.join_conditions import JoinOperator, JoinType
from job.spec.sides import SIDES
from tests.integration.failpoint import Failpoint
from tests.integration.jobs import START_SECONDS, STATE_PARTITIONS, Job
from tests.integration.topics import Received, add_partitions, consume_all
from tests.unit.specs import changed

SPEC = """
name: {name}
kafka: {{bootstrap_servers: "{servers}"}}
left:
  topic: {name}.left
  schema: k STRING, t TIMESTAMP
  key: [k]
  event_time: t
  watermark_delay: 10 seconds
  max_event_time_ahead: 1 second
right:
  topic: {name}.right
  schema: k STRING, t TIMESTAMP
  key: [k]
  event_time: t
  watermark_delay: 10 seconds
  max_event_time_ahead: 1 second
join: {{type: {join_type}, match_window: {{before: 2 seconds, after: 5 seconds}}{operator}}}
output:
  topic: {output}
  columns: {{{columns}}}
  delivery: exactly_once
checkpoint: {checkpoint}
on_bad_record: drop
{engine}
"""
ENGINES = {
    Engine.MICRO_BATCH: "",
    Engine.REAL_TIME: ("engine: real_time\nreal_time: {checkpoint_interval: 2 seconds}"),
}

# Kafka deletes old records by their timestamps, which are the event times here.
T0 = (int(time.time()) - 3_600) * 1_000


@dataclass(frozen=True)
class Row:
    k: str
    t: int


Rows = tuple[list[Row], list[Row]]

WIDER = STATE_PARTITIONS + 1


class ChangedJob(Job):
    """The job of the new spec. The change sets its number of state partitions."""

    state_partitions: int | None = None

    @property
    def environment(self) -> dict[str, str]:
        variables = super().environment
        del variables["STREAMJOIN_STATE_PARTITIONS"]
        if self.state_partitions is not None:
            variables["STREAMJOIN_STATE_PARTITIONS"] = str(self.state_partitions)
        return variables

    def change(self, old: Job, *arguments: str) -> "subprocess.CompletedProcess[str]":
        """Run a command that stops the query of `old`."""
        own, self.socket, self.state_partitions = self.socket, old.socket, WIDER
        try:
            return self.command(*arguments)
        finally:
            self.socket, self.state_partitions = own, None


class Topics:
    def __init__(self, kafka: EmbeddedKafka, name: str, join_type: JoinType) -> None:
        self.name = name
        self.servers = kafka.bootstrap_servers
        self.join_type = join_type
        self.output = f"{name}.out"
        self.new_output = self.output
        if join_type is JoinType.FULL_OUTER:
            self.new_output = f"{name}.out.new"
        self.shadow_output = f"{name}.out.shadow"
        self.outputs = {self.output, self.new_output}
        """The output topics of the old and the new query."""
        topics = (f"{name}.left", f"{name}.right", *self.outputs, self.shadow_output)
        kafka.create_topics(topics, partitions=2)

    def spec(
        self,
        folder: Path,
        output: str,
        engine: Engine = Engine.MICRO_BATCH,
        operator: JoinOperator = JoinOperator.SPARK,
    ) -> str:
        """`operator`: of micro-batches."""
        columns = {
            f"{side}_{field}": f"{side}.{field}"
            for side in self.join_type.shown_sides
            for field in ("k", "t")
        }
        return SPEC.format(
            name=self.name,
            output=output,
            servers=self.servers,
            join_type=self.join_type,
            columns=", ".join(f"{name}: {text}" for name, text in columns.items()),
            checkpoint=folder / "checkpoint",
            engine=ENGINES[engine],
            operator="" if engine is Engine.REAL_TIME else f", operator: {operator}",
        )

    def shadow_spec(self, folder: Path) -> str:
        text = self.spec(folder, self.shadow_output)
        return changed(text, name=f"{self.name}_shadow")

    def received(self) -> list[Received]:
        """The committed results in all output topics."""
        return [record for output in self.outputs for record in consume_all(self.servers, output)]

    def feed(self, rows: Rows) -> None:
        producer = Producer(
            {
                "bootstrap.servers": self.servers,
                "log_level": 0,
                "max.in.flight.requests.per.connection": 1,
            }
        )
        for side, of_side in zip(("left", "right"), rows, strict=True):
            for row in of_side:
                at = T0 + row.t * 1_000
                value = json.dumps({"k": row.k, "t": at})
                producer.produce(f"{self.name}.{side}", value, row.k, timestamp=at)
        assert 0 == producer.flush(START_SECONDS)

    def add_partition(self) -> None:
        """To both input topics. Later rows are distributed over three partitions."""
        add_partitions(self.servers, *(f"{self.name}.{side}" for side in SIDES), total=3)

    def feed_bad_record(self) -> None:
        """Produce a record on the left side whose value cannot be read."""
        producer = Producer(
            {
                "bootstrap.servers": self.servers,
                "log_level": 0,
                "max.in.flight.requests.per.connection": 1,
            }
        )
        producer.produce(f"{self.name}.left", "not JSON", "k", timestamp=T0 + 45_000)
        assert 0 == producer.flush(START_SECONDS)


class Feeder:
    """Produces rows. `feed` waits until the job has read them."""

    def __init__(self, topics: Topics) -> None:
        self._topics = topics
        self.counts = [0, 0]

    def send(self, rows: Rows) -> None:
        self._topics.feed(rows)
        for index, of_side in enumerate(rows):
            self.counts[index] += len(of_side)

    def feed(self, job: Job, rows: Rows) -> None:
        self.send(rows)
        job.wait_for_offsets(left=self.counts[0], right=self.counts[1])


@contextmanager
def killed_in_its_replay(job: Job, failpoint: Failpoint, points: Sequence[str]) -> Iterator[Job]:
    """Runs the job, which is killed at each of the points and started again."""
    for point in points[:1]:
        failpoint.arm("kill", point)
    with job:
        for following in (*points[1:], None)[: len(points)]:
            failpoint.wait()
            job.wait_for_kill()
            if following is not None:
                failpoint.arm("kill", following)
            job.start()
        yield job


def succeeds(command: "subprocess.CompletedProcess[str]") -> None:
    assert 0 == command.returncode, command.stderr


def created(parent: Path, *names: str) -> list[Path]:
    folders = [parent / name for name in names]
    for folder in folders:
        folder.mkdir()
    return folders


def results(topics: Topics) -> list[Received]:
    """The delivered results. Each one is delivered once."""
    received = topics.received()
    assert len(received) == len({record.result_id for record in received})
    return received


def check_results(topics: Topics, *joined: Rows) -> list[Received]:
    """The results are those of `joined`. Returns the results."""
    received = results(topics)
    lefts, rights = ([row for rows in of for row in rows] for of in zip(*joined, strict=True))
    assert expected(topics.join_type, lefts, rights) == Counter(
        result(record.value) for record in received
    )
    return received


def result(value: Mapping[str, str | None]) -> tuple[str | None, ...]:
    return tuple(value.values())


def expected(
    join_type: JoinType, lefts: Iterable[Row], rights: Iterable[Row]
) -> Counter[tuple[str | None, ...]]:
    """The expected results, by nested loops."""
    lefts, rights = list(lefts), list(rights)
    pairs = [
        (left, right)
        for left in lefts
        for right in rights
        if left.k == right.k and left.t - 2 <= right.t <= left.t + 5
    ]
    matched = {"left": {pair[0] for pair in pairs}, "right": {pair[1] for pair in pairs}}
    unmatched = {
        "left": [(row, None) for row in lefts if row not in matched["left"]],
        "right": [(None, row) for row in rights if row not in matched["right"]],
    }
    if (semi := join_type.semi_side) is not None:
        return Counter(shown(row) for row in matched[semi])
    if (anti := join_type.anti_side) is not None:
        found = unmatched[anti]
        return Counter(shown(*(row for row in pair if row is not None)) for pair in found)
    results = [*pairs, *(pair for side in join_type.outer_sides for pair in unmatched[side])]
    return Counter(shown(*pair) for pair in results)


def shown(*rows: Row | None) -> tuple[str | None, ...]:
    shown: list[str | None] = []
    for row in rows:
        shown += [None, None] if row is None else [row.k, _time(row.t)]
    return tuple(shown)


def _time(seconds: int) -> str:
    at = time.gmtime(T0 // 1000 + seconds)
    return time.strftime("%Y-%m-%dT%H:%M:%S.000Z", at)
