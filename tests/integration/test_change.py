"""A change of the join while it runs: the old and the new query together give each result once."""

import json
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
from confluent_kafka import Producer

from deploy.local.kafka import EmbeddedKafka
from job.join_spec.join_conditions import JoinType
from tests.integration.jobs import START_SECONDS, STATE_PARTITIONS, Job
from tests.integration.jvms import SharedJvm
from tests.integration.topics import consume_all

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
join: {{type: {join_type}, match_window: {{before: 2 seconds, after: 5 seconds}}}}
output:
  topic: {output}
  columns: {{{columns}}}
  delivery: exactly_once
checkpoint: {checkpoint}
on_bad_record: drop
"""

# Kafka deletes old records by their timestamps, which are the event times here.
T0 = (int(time.time()) - 3_600) * 1_000


@dataclass(frozen=True)
class Row:
    k: str
    t: int


Rows = tuple[list[Row], list[Row]]

# Every row of this batch expires before the cut, and lies before what is read again.
PAST: Rows = (
    [Row("past", 1), Row("past alone", 1)],
    [Row("past", 1), Row("past other", 1)],
)
# The watermark is 35 at the cut: left rows from 30 on and right rows from 33 on have not expired.
BEFORE: Rows = (
    [Row("expired", 25), Row("matched early", 31), Row("waits", 38), Row("pair", 38), Row("z", 45)],
    [Row("matched early", 30), Row("waits too", 40), Row("pair", 39), Row("z", 45)],
)
# Behind the watermark of 35. They would not have expired in a query that reads them again.
LATE: Rows = ([Row("late", 34)], [Row("late too", 35)])
AFTER: Rows = (
    [Row("waits too", 39), Row("pair", 37), Row("new", 36), Row("late too", 36)],
    [
        *(Row("late", 37), Row("waits", 36), Row("waits", 43), Row("pair", 36)),
        *(Row("matched early", 36), Row("late too", 40)),
    ],
)
LATE_AGAIN: Rows = ([Row("past other", 2)], [Row("expired", 30)])
CLOSING: Rows = ([Row("closing left", 1000)], [Row("closing right", 1000)])
WIDER = STATE_PARTITIONS + 1


class WiderJob(Job):
    """With another number of state partitions."""

    @property
    def environment(self) -> dict[str, str]:
        return {**super().environment, "STREAMJOIN_STATE_PARTITIONS": str(WIDER)}


class Topics:
    def __init__(self, kafka: EmbeddedKafka, name: str, join_type: JoinType) -> None:
        self.name = name
        self.servers = kafka.bootstrap_servers
        self._join_type = join_type
        self.output = f"{name}.out"
        self.new_output = self.output
        if join_type is JoinType.FULL_OUTER:
            self.new_output = f"{name}.out.new"
        topics = (f"{name}.left", f"{name}.right", *self.outputs)
        kafka.create_topics(topics, partitions=2)

    @property
    def outputs(self) -> set[str]:
        """The output topics of the old and the new query."""
        return {self.output, self.new_output}

    def spec(self, folder: Path, output: str) -> str:
        columns = {
            f"{side}_{field}": f"{side}.{field}"
            for side in self._join_type.shown_sides
            for field in ("k", "t")
        }
        return SPEC.format(
            name=self.name,
            output=output,
            servers=self.servers,
            join_type=self._join_type,
            columns=", ".join(f"{name}: {text}" for name, text in columns.items()),
            checkpoint=folder / "checkpoint",
        )

    def feed(self, rows: Rows) -> None:
        producer = Producer({"bootstrap.servers": self.servers, "log_level": 0})
        for side, of_side in zip(("left", "right"), rows, strict=True):
            for row in of_side:
                at = T0 + row.t * 1_000
                value = json.dumps({"k": row.k, "t": at})
                producer.produce(f"{self.name}.{side}", value, row.k, timestamp=at)
        assert 0 == producer.flush(START_SECONDS)


# The other types are these with other sides, for the code of a change. A run takes two jobs.
@pytest.mark.parametrize(
    "join_type", [JoinType.INNER, JoinType.FULL_OUTER, JoinType.LEFT_SEMI, JoinType.LEFT_ANTI]
)
def test_change_of_state_partitions_gives_the_results_of_one_run(
    join_type: JoinType, kafka: EmbeddedKafka, tmp_path: Path, jvm: SharedJvm
) -> None:
    topics = Topics(kafka, f"changed_{join_type}", join_type)
    folders = [tmp_path / "old", tmp_path / "new"]
    for folder in folders:
        folder.mkdir()
    old_spec = topics.spec(folders[0], topics.output)
    new_spec = topics.spec(folders[1], topics.new_output)
    counts = [0, 0]

    def feed(job: Job, rows: Rows) -> None:
        topics.feed(rows)
        for index, of_side in enumerate(rows):
            counts[index] += len(of_side)
        job.wait_for_offsets(left=counts[0], right=counts[1])

    with Job(old_spec, folders[0], jvm) as old:
        feed(old, PAST)
        feed(old, BEFORE)
        old.wait_for_watermark(T0 + 35_000)
        feed(old, LATE)
        written = WiderJob(new_spec, folders[1], jvm)
        specs = (str(old.spec_file), str(written.spec_file))

        planned = old.command("change", *specs, "--plan", "--json")
        assert 0 == planned.returncode, planned.stderr
        facts = json.loads(planned.stdout)
        own_socket, written.socket = written.socket, old.socket
        if join_type is JoinType.INNER:
            folder = str(folders[1] / "checkpoint")
            made = written.command("checkpoint", "repartition", str(old.spec_file), folder)
        else:
            made = written.command("change", *specs)
        written.socket = own_socket
        assert 0 == made.returncode, made.stderr
        old.terminate()

    with written as new:
        feed(new, AFTER)
        feed(new, LATE_AGAIN)
        topics.feed(CLOSING)
        status = new.wait_for_watermark(T0 + 990_000)
        assert 0 == new.terminate()

    assert facts["records"] < sum(counts)
    assert (0, 2) == (facts["possibly_late_records"], facts["late_rows_of_the_job"])
    assert status.change is not None
    assert ("over", 0) == (status.change.phase, status.change.records_left)
    assert 2 == status.totals.late_rows
    received = [
        record for output in topics.outputs for record in consume_all(topics.servers, output)
    ]
    lefts, rights = ([*of[0], *of[1], *of[2]] for of in zip(PAST, BEFORE, AFTER, strict=True))
    assert _expected(join_type, lefts, rights) == Counter(
        _result(record.value) for record in received
    )
    assert len(received) == len({record.result_id for record in received})
    if topics.output != topics.new_output:
        compared = new.command("compare", *specs, "--until", "2100-01-01T00:00:00Z", "--json")
        counts_by_kind = json.loads(compared.stdout)["counts"]
        only = [counts_by_kind.pop(kind) for kind in ("only_first", "only_second")]
        # No result of the old query is repeated by the new one.
        assert (1, {0}) == (compared.returncode, set(counts_by_kind.values()))
        assert len(received) == sum(only)
        assert all(only)


def _result(value: Mapping[str, str | None]) -> tuple[str | None, ...]:
    return tuple(value.values())


def _expected(
    join_type: JoinType, lefts: Iterable[Row], rights: Iterable[Row]
) -> Counter[tuple[str | None, ...]]:
    """Nested loops."""
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
        return Counter(_shown(row) for row in matched[semi])
    if (anti := join_type.anti_side) is not None:
        found = unmatched[anti]
        return Counter(_shown(*(row for row in pair if row is not None)) for pair in found)
    results = [*pairs, *(pair for side in join_type.outer_sides for pair in unmatched[side])]
    return Counter(_shown(*pair) for pair in results)


def _shown(*rows: Row | None) -> tuple[str | None, ...]:
    shown: list[str | None] = []
    for row in rows:
        shown += [None, None] if row is None else [row.k, _time(row.t)]
    return tuple(shown)


def _time(seconds: int) -> str:
    at = time.gmtime(T0 // 1000 + seconds)
    return time.strftime("%Y-%m-%dT%H:%M:%S.000Z", at)
