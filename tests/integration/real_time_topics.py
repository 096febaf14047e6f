"""Topics of a join of the real-time engine, and its rows computed by nested loops."""

import json
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Any

from confluent_kafka import Producer

from deploy.local.kafka import EmbeddedKafka
from job.protocol.status import JobStatus, Phase
from job.spec.join_conditions import JoinType
from job.spec.sides import SIDES
from job.spec.value_format import Format
from tests.encoded_values import read, schema_id
from tests.integration.jobs import START_SECONDS, Job
from tests.integration.keyed_sides import (
    JAVA_PARTITIONS,
    KEYED_SIDES,
    LEFT_IN_ENVELOPES,
    OUTPUT_PARTITIONS,
    T0,
    change,
)
from tests.integration.topics import Sent, consume_all, count_all, dead_letters, produce
from tests.polling import wait_until
from tests.registry_stub import RegistryStub
from tests.unit.formats import written
from tests.unit.formats.written import field, framed, record
from tests.unit.specs import changed

DELAY_SECONDS = 30
"""Of the watermarks. An interval does not end at the same moment for all partitions, so the rows
of one request can be in two intervals. With this delay none of FIRST, SECOND and `generated` is
late in the second one."""
_SIDES = KEYED_SIDES.replace("10 seconds", f"{DELAY_SECONDS} seconds")

SPEC = (
    "name: rt_{name}"
    + _SIDES
    + """
  condition: left.a < 100 and left.a <> right.b
output:
  topic: {name}.out
  columns: {{{columns}}}
  key: {number}
  partition_by: {key_column}
  headers: {{number: {number}}}
  delivery: {delivery}
engine: real_time
real_time: {{checkpoint_interval: {interval}}}
checkpoint: {checkpoint}
{bad_records}
"""
)

_AVRO = record(field("k", ["null", "string"]), field("t", "long"), field("a", "long"))
_OTHER = record(field("a", "string"))
_PROTO = """syntax = "proto3";
message Right { optional string k = 1; int64 t = 2; int64 b = 3; }
"""

Row = tuple[str | None, int, int]
Letter = tuple[str, str, bytes | None]
"""Topic of the record, reason, value."""

_COLUMNS = {
    "left": {"k": "left.k", "lt": "left.at", "a": "left.a"},
    "right": {"rk": "right.k", "rt": "right.t", "b": "right.b"},
}
_NUMBERS = {"left": "a", "right": "b"}
"""Name of the number of each side, which is also a header and the key."""
_KEYS = {"left": "k", "right": "rk"}
"""Name of the key of each side, which chooses the partition."""


class Topics:
    """The topics of one test, and what was sent to them."""

    def __init__(
        self,
        kafka: EmbeddedKafka,
        name: str,
        join_type: str,
        folder: Path,
        *,
        interval: str = "2s",
        partitions: int = 2,
        idle_after: str | None = None,
        registry: RegistryStub | None = None,
        output_format: Format = Format.JSON,
        delivery: str = "at_least_once",
        in_envelopes: bool = False,
    ) -> None:
        """`idle_after`: set on the right side. `output_format`: if the format has a registry, left
        rows are Avro and right rows Protobuf; otherwise both are JSON. `registry`: used if the
        format has one. `in_envelopes`: the left rows are those of creates, updates and deletes."""
        self.kafka, self.name = kafka, name
        self.join_type = JoinType(join_type)
        self.sent: dict[str, list[Row]] = {"left": [], "right": []}
        self._folder = folder
        self.interval = interval
        self._partitions = partitions
        self._idle_after = idle_after
        self._in_envelopes = in_envelopes
        self._format = output_format
        self._registry = registry if output_format.has_registry else None
        self._schema_ids: dict[str, int] = {}
        if self._registry is not None:
            register = self._registry.register
            self._schema_ids["left"] = register(f"{name}.left-value", _AVRO)
            self._schema_ids["right"] = register(f"{name}.right-value", _PROTO, "PROTOBUF")
            self._schema_ids["other"] = register("other", _OTHER)
        self.delivery = delivery
        kafka.create_topics(
            [f"{name}.{part}" for part in ("left", "right", "out")], partitions=partitions
        )
        kafka.create_topics([self.dead], partitions=1)

    def spec(self, bad_records: str = "on_bad_record: drop") -> str:
        shown = self.join_type.shown_sides
        columns = {name: text for side in shown for name, text in _COLUMNS[side].items()}
        text = SPEC.format(
            name=self.name,
            servers=self.kafka.bootstrap_servers,
            join_type=self.join_type,
            columns=", ".join(f"{name}: {column}" for name, column in columns.items()),
            key_column=_KEYS[shown[0]],
            number=f"{shown[0]}.{_NUMBERS[shown[0]]}",
            checkpoint=self._folder / "checkpoint",
            interval=self.interval,
            bad_records=bad_records,
            delivery=self.delivery,
        )
        changes: dict[str, Any] = {}
        if self._idle_after is not None:
            changes["right__idle_after"] = self._idle_after
        if self._in_envelopes:
            changes |= LEFT_IN_ENVELOPES
        if self._registry is not None:
            changes |= {
                "schema_registry": {"url": self._registry.url},
                "left__format": "avro",
                "right__format": "protobuf",
                "output__format": self._format.value,
            }
        return changed(text, **changes) if changes else text

    @property
    def dead(self) -> str:
        """Topic for dead letters. Unused unless the spec of the test names it."""
        return f"{self.name}.dead"

    def send_bad(self) -> Counter[Letter]:
        """Send encoded values that cannot be read to both sides. Returns their dead letters."""
        sent: Counter[Letter] = Counter()
        for side in SIDES:
            values = {
                "incompatible_schema": framed(
                    self._schema_ids["other"], written.avro(_OTHER, a="one")
                ),
                "tombstone": None,
                "undecodable_value": framed(self._schema_ids[side], b"\xff"),
                "unknown_schema": framed(9_999_999, b"x"),
            }
            topic = f"{self.name}.{side}"
            produce(self.kafka.bootstrap_servers, topic, map(Sent, values.values()))
            sent.update((topic, reason, value) for reason, value in values.items())
        return sent

    def letters(self) -> Counter[Letter]:
        return Counter(
            (letter.topic, letter.reason, letter.value)
            for letter in dead_letters(self.kafka, self.dead)
        )

    def send(self, left: list[Row], right: list[Row]) -> None:
        for side, rows, value in (("left", left, "a"), ("right", right, "b")):
            self.sent[side] += rows
            records = [self._value(side, k=k, t=T0 + t * 1000, **{value: v}) for k, t, v in rows]
            if side == "left" and self._in_envelopes:
                records = [change(row, n) for n, row in enumerate(records)]
            produce(self.kafka.bootstrap_servers, f"{self.name}.{side}", records)

    def send_in_transactions(self, left: list[Row], right: list[Row], *, partition: int) -> None:
        """One transaction for each side; after it one that is aborted."""
        settings = {"bootstrap.servers": self.kafka.bootstrap_servers, "log_level": 0}
        producer = Producer({**settings, "transactional.id": f"{self.name}-{partition}"})
        producer.init_transactions(30)
        for side, rows, value in (("left", left, "a"), ("right", right, "b")):
            self.sent[side] += rows
            for end in (producer.commit_transaction, producer.abort_transaction):
                producer.begin_transaction()
                for k, t, v in rows:
                    record = json.dumps({"k": k, "t": T0 + t * 1000, value: v})
                    producer.produce(f"{self.name}.{side}", record, partition=partition)
                producer.flush(30)
                end(30)

    def close(self, job: Job) -> None:
        """Send rows behind all windows, once an interval has read those before them and ended.

        An interval may read one partition later than another: of a row that only the next interval
        reads, the closing rows would make a late one.
        """
        servers = self.kafka.bootstrap_servers
        left, right = (count_all(servers, f"{self.name}.{side}") for side in SIDES)
        job.wait_for_offsets(left=left, right=right)
        self.send(*CLOSING)

    def _value(self, side: str, **row: Any) -> Any:
        if self._registry is None:
            return row
        if side == "left":
            return Sent(framed(self._schema_ids[side], written.avro(_AVRO, **row)))
        present = {name: value for name, value in row.items() if value is not None}
        return Sent(framed(self._schema_ids[side], written.proto(_PROTO, **present)))

    def results(self) -> Counter[str]:
        decoded = self._decoded if self._format.has_registry else json.loads
        received = consume_all(self.kafka.bootstrap_servers, f"{self.name}.out", decoded)
        shown = self.join_type.shown_sides[0]
        for result in received:
            number = result.value[_NUMBERS[shown]]
            text = None if number is None else str(number)
            assert (text, text) == (result.headers["number"], result.key)
            key = result.value[_KEYS[shown]]
            if self._partitions == OUTPUT_PARTITIONS and key in JAVA_PARTITIONS:
                assert JAVA_PARTITIONS[key] == result.partition
        return Counter(text_of(result.value) for result in received)

    def _decoded(self, value: bytes) -> dict[str, Any]:
        assert self._registry is not None
        _, answer = self._registry.answer(f"/schemas/ids/{schema_id(value)}")
        row = read(value, self._format, json.loads(answer)["schema"])
        return {
            name: _time_text(part) if isinstance(part, datetime) else part
            for name, part in row.items()
        }

    def wait_for_results(self) -> None:
        expected = set(self.expected())
        missing = set(expected)

        def all_came() -> bool:
            missing.intersection_update(expected - set(self.results()))
            return not missing

        try:
            wait_until(all_came, START_SECONDS, f"{len(expected)} results have come")
        except AssertionError as error:
            raise AssertionError(f"missing: {sorted(missing)}") from error

    def expected(self) -> Counter[str]:
        """By nested loops; rows at or after `closing` are not known to be unmatched."""
        lefts = [row for row in self.sent["left"] if row[2] >= 0]
        rights = self.sent["right"]
        pairs = [
            (left, right)
            for left in lefts
            for right in rights
            if left[0] is not None
            and left[0] == right[0]
            and -2 <= right[1] - left[1] <= 5
            and left[2] < 100
            and left[2] != right[2]
        ]
        matched_left = {left for left, _ in pairs}
        matched_right = {right for _, right in pairs}
        unmatched_left = [row for row in lefts if row not in matched_left and row[1] < CLOSING_AT]
        unmatched_right = [
            row for row in rights if row not in matched_right and row[1] < CLOSING_AT
        ]
        found: list[tuple[Row | None, Row | None]] = []
        if len(self.join_type.shown_sides) == len(SIDES):
            found += pairs
        if self.join_type.semi_side == "left":
            found += [(left, None) for left in matched_left]
        if self.join_type.semi_side == "right":
            found += [(None, right) for right in matched_right]
        if "left" in self.join_type.outer_sides:
            found += [(left, None) for left in unmatched_left]
        if "right" in self.join_type.outer_sides:
            found += [(None, right) for right in unmatched_right]
        return Counter(text_of(self.result(left, right)) for left, right in found)

    def result(self, left: Row | None, right: Row | None) -> dict[str, Any]:
        rows = {"left": left, "right": right}
        return {
            name: value
            for side in self.join_type.shown_sides
            for name, value in zip(_COLUMNS[side], _shown(rows[side]), strict=True)
        }


# The watermark passes every window before it.
CLOSING_AT = 1000
CLOSING: tuple[list[Row], list[Row]] = (
    [("closing-left", CLOSING_AT, 1)],
    [("closing-right", CLOSING_AT, 1)],
)
FIRST: tuple[list[Row], list[Row]] = (
    [("x", 20, 1), ("x", 21, 2), ("edge", 20, 1), (None, 20, 1), ("f", 20, -1), ("big", 20, 100),
     ("same", 20, 7), ("late-partner", 24, 1)],
    [("x", 22, 5), ("edge", 25, 5), ("edge", 18, 6), ("edge", 26, 7), ("edge", 17, 8),
     (None, 20, 5), ("f", 20, 5), ("big", 20, 5), ("same", 20, 7), ("alone", 20, 5)],
)  # fmt: skip
SECOND: tuple[list[Row], list[Row]] = (
    [("x", 16, 3), ("alone", 40, 1), ("same", 18, 8)],
    [("late-partner", 28, 5), ("x", 23, 9), ("alone", 41, 2)],
)


def generated(seed: str, batch: int) -> tuple[list[Row], list[Row]]:
    """Random rows of few keys, to be sent with FIRST (batch 0) and SECOND (batch 1). None is
    late."""
    random = Random(f"{seed} {batch}")
    earliest, latest = [(15, 24), (18, 40)][batch]

    def rows() -> list[Row]:
        numbers = range(20 * batch + 10, 20 * batch + 30)
        return [(random.choice("pqr"), random.randint(earliest, latest), n) for n in numbers]

    return rows(), rows()


def _shown(row: Row | None) -> tuple[str | None, str | None, int | None]:
    if row is None:
        return None, None, None
    milliseconds = T0 + row[1] * 1000
    return row[0], _time_text(datetime.fromtimestamp(milliseconds / 1000, UTC)), row[2]


def _time_text(at: datetime) -> str:
    return at.strftime("%Y-%m-%dT%H:%M:%S.000Z")


def text_of(value: dict[str, Any]) -> str:
    return json.dumps(value, sort_keys=True)


def wait_for_intervals(job: Job) -> JobStatus:
    """Until the query runs in real time."""
    return job.wait_for(lambda status: status.phase is Phase.REAL_TIME, "the query has caught up")
