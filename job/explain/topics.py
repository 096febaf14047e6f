"""Reads the records of a key from the topics of a join: inputs, dead letters and results.

It reads committed records without a consumer group, from a time on, within limits of bytes and
time, and reports how far it has read.
"""

import re
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from threading import Event

from confluent_kafka import (
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)

from job.dead_letters.headers import DeadLetter, dead_letter
from job.errors import CancelledError
from job.explain.evaluation import place_of
from job.explain.facts import Letter, OutputRead, Result, RowId
from job.formats.schemas import OF_A_REGISTRY
from job.kafka.clients import (
    ANSWER_SECONDS,
    EARLIEST,
    LATEST,
    NOT_READABLE,
    AdminClient,
    admin,
    at_time,
    bytes_of,
    consumer,
    describe_error,
    headers_of,
    list_offsets,
    placed,
)
from job.kafka.topic_settings import is_known_to_be_compacted
from job.plan.plan import JoinPlan
from job.plan.result_id import ID_HEADER, MATCH_HEADER, Place, parsed_place, places
from job.plan.side_plan import SidePlan
from job.plan.value_sql import MALFORMED_JSON, SCHEMA_MISMATCH
from job.semantics.input_records import InputRecord, header_texts
from job.spec.sides import OTHER_SIDE, SIDES, Side
from job.spec.value_format import Format

BYTES_MAX = 64 * 1024 * 1024
_INPUT_BYTES_MAX = 40 * 1024 * 1024
"""The rest is for dead letters and results."""
_INPUT_SECONDS, _WRITTEN_SECONDS, _PLACES_SECONDS = 5.0, 3.0, 1.0
"""Of reading: 10 s with both calls for single places. The evaluation of the records is not part of
it."""
_RECORDS_A_CALL = 500
_SELECTED_AT_ONCE = 2_000
_POLL_SECONDS = 0.2
_GROUP = "streamjoin-explain"
_UNREADABLE = {"tombstone", MALFORMED_JSON, SCHEMA_MISMATCH} | OF_A_REGISTRY
"""Reasons of records whose value, or a field of it, cannot be read."""
_PLAIN = re.compile(r"[A-Za-z0-9_.:@-]+")
# JSON may write any character of a text with a backslash, and a number with an exponent.
_ESCAPE, _ESCAPE_OR_EXPONENT = re.compile(rb"\\"), re.compile(rb"\\|[0-9.][eE]")

Select = Callable[[Side, Sequence[InputRecord]], list[InputRecord]]


@dataclass
class TopicRead:
    """How far a topic was read."""

    topic: str
    from_ms: int
    """Timestamp from which it was read; records before it are not read, or do not exist. 0: it was
    read from its first record."""
    until_ms: int | None = None
    """Timestamp of the last record that was read. None: no record."""
    is_complete: bool = False
    problem: str | None = None
    """Why it cannot be read. None: no problem."""


@dataclass
class KeyTopics:
    """What the topics contain of a key."""

    records: dict[Side, list[InputRecord]] = field(
        default_factory=lambda: {side: [] for side in SIDES}
    )
    letters: dict[RowId, Letter] = field(default_factory=dict)
    result_letters: dict[frozenset[RowId], Letter] = field(default_factory=dict)
    results: list[Result] = field(default_factory=list)
    left_out: dict[Side, int] = field(default_factory=dict)
    """Number of older records of the key that are not in `records`."""
    named: list[RowId] = field(default_factory=list)
    """Other rows that results or letters name, of each side the newest."""
    not_named: dict[Side, int] = field(default_factory=dict)
    """Number of such rows that are not in `named`."""
    read: list[TopicRead] = field(default_factory=list)
    output: OutputRead | None = None


class KeyTopicsReader:
    """Raises KafkaException, and CancelledError once the caller is gone."""

    def __init__(
        self, plan: JoinPlan, settings: Mapping[str, str], since_ms: int, caller_gone: Event
    ) -> None:
        """`plan`: with the topics of the running query. `settings`: librdkafka's."""
        self._plan = plan
        self._settings = settings
        self._since_ms = since_ms
        self._caller_gone = caller_gone
        self._admin: AdminClient = admin(settings)
        self._ends_at = 0.0
        self._bytes = 0

    def read(
        self, key: Sequence[str], select: Select, known: Collection[RowId], *, limit: int
    ) -> KeyTopics:
        """`select`: chooses the records of the key. `known`: rows of the key in state, which are
        read even if they are older. `limit`: records of each side, and as many that only results
        or letters name."""
        found = KeyTopics()
        settings = {"queued.max.messages.kbytes": 4096, **self._settings}
        with closing(consumer(settings, _GROUP)) as client:
            self._read_inputs(client, key, select, found)
            for side in SIDES:
                found.left_out[side] = max(0, len(found.records[side]) - limit)
                found.records[side] = found.records[side][-limit:]
            self._read_places(client, set(known) - self._rows(found), found)
            of_key = self._rows(found) | set(known)
            self._read_written(client, key, of_key, found)
            name_rows(found, of_key, limit)
            self._read_places(client, found.named, found)
        return found

    def _rows(self, found: KeyTopics) -> set[RowId]:
        return {
            (side, place_of(self._plan.side(side), record))
            for side in SIDES
            for record in found.records[side]
        }

    def _read_inputs(
        self,
        client: Consumer,
        key: Sequence[str],
        select: Select,
        found: KeyTopics,
    ) -> None:
        topics = dict.fromkeys(self._plan.input_topics, self._since_ms)
        waiting: dict[Side, list[InputRecord]] = {side: [] for side in SIDES}

        def flush(side: Side) -> None:
            found.records[side] += select(side, waiting[side])
            waiting[side].clear()

        filters = {side: _may_have_key(self._plan.side(side), key) for side in SIDES}
        for message in self._messages(client, topics, found, _INPUT_SECONDS, _INPUT_BYTES_MAX):
            for side in SIDES:
                topics_of_side = self._plan.side(side).topics
                if message.topic() in topics_of_side.names and filters[side](message):
                    waiting[side].append(input_record(self._plan.side(side), message))
                    if len(waiting[side]) >= _SELECTED_AT_ONCE:
                        flush(side)
        for side in SIDES:
            flush(side)

    def _read_places(self, client: Consumer, rows: Collection[RowId], found: KeyTopics) -> None:
        """Single records that other facts name."""
        self._ends_at = time.monotonic() + _PLACES_SECONDS
        for side, place in sorted(rows):
            if self._is_over(BYTES_MAX):
                return
            client.assign([TopicPartition(*place)])
            for message in client.consume(1, 1.0):
                if message.error() is None and message.offset() == place.offset:
                    found.records[side].append(input_record(self._plan.side(side), message))

    def _read_written(
        self, client: Consumer, key: Sequence[str], of_key: set[RowId], found: KeyTopics
    ) -> None:
        letters, output = self._plan.dead_letter, self._plan.output.topic
        topics = {output: self._since_ms}
        if self._plan.output.has_event_time:  # their timestamps are not when they were written
            topics[output] = 0
        if letters is not None:
            topics[letters.topic] = self._since_ms
        record_key = key[0].encode() if len(key) == 1 else None
        for message in self._messages(client, topics, found, _WRITTEN_SECONDS, BYTES_MAX):
            at = str(placed(message))
            headers = headers_of(message)
            if message.topic() == output and (records := _records_of(headers)) is not None:
                if not of_key.isdisjoint(records.items()):
                    found.results.append(Result(records, at, self._written_ms(message)))
            elif letters is not None and message.topic() == letters.topic:
                letter = dead_letter(at, bytes_of(message.key()), None, headers)
                if letter is not None and letter.query == self._plan.name:
                    add_letter(letter, headers, of_key, record_key, found)
        for read in found.read:
            if read.topic == output:
                is_compacted = is_known_to_be_compacted(self._admin, output)
                found.output = OutputRead(output, read.from_ms, read.is_complete, is_compacted)

    def _written_ms(self, message: Message) -> int | None:
        kind, at_ms = message.timestamp()
        return at_ms if kind and not self._plan.output.has_event_time else None

    def _messages(
        self,
        client: Consumer,
        topics: Mapping[str, int],
        found: KeyTopics,
        seconds: float,
        bytes_max: int,
    ) -> Iterator[Message]:
        """Records of the topics since a timestamp, up to their present ends or a limit. Adds how
        far each topic was read."""
        reads: dict[str, TopicRead] = {}
        starts: list[TopicPartition] = []
        ends: dict[tuple[str, int], int] = {}
        cut: set[tuple[str, int]] = set()
        for name, since_ms in sorted(topics.items()):
            reads[name] = TopicRead(name, since_ms)
            found.read.append(reads[name])
            try:
                first, start, end = self._offsets(name, since_ms)
            except KafkaException as error:
                if error.args[0].code() not in NOT_READABLE:
                    raise
                reads[name].problem = describe_error(error)
                continue
            starts += [TopicPartition(name, p, start[p]) for p in start if start[p] < end[p]]
            ends |= {(name, p): end[p] for p in start if start[p] < end[p]}
            # Retention may have removed records of them.
            cut |= {(name, p) for p in start if 0 < first[p] == start[p]}
        if starts:
            client.assign(starts)
        begins: dict[tuple[str, int], int] = {}
        """Timestamp of the first record of each partition that is cut."""
        self._ends_at = time.monotonic() + seconds
        while ends and not self._is_over(bytes_max):
            for message in client.consume(_RECORDS_A_CALL, _POLL_SECONDS):
                topic, partition, offset = message.topic(), message.partition(), message.offset()
                assert topic is not None
                assert partition is not None
                if (event := message.error()) is not None:
                    if event.code() in {KafkaError._PARTITION_EOF, *NOT_READABLE}:
                        ends.pop((topic, partition), None)
                        if event.code() != KafkaError._PARTITION_EOF:
                            reads[topic].problem = event.str()
                    elif not event.retriable() and event.code() != _NO_GROUP:
                        raise KafkaException(event)
                    continue
                assert offset is not None
                self._bytes += len(message)
                _, at_ms = message.timestamp()
                if (topic, partition) in cut:
                    begins.setdefault((topic, partition), at_ms)
                reads[topic].until_ms = max(at_ms, reads[topic].until_ms or at_ms)
                if offset + 1 >= ends.get((topic, partition), 0):
                    ends.pop((topic, partition), None)
                yield message
        now_ms = round(time.time() * 1000)
        for name, read in reads.items():
            read.is_complete = read.problem is None and all(unread != name for unread, _ in ends)
            if any(topic == name for topic, _ in cut):
                of_topic = [at_ms for (topic, _), at_ms in begins.items() if topic == name]
                read.from_ms = max(read.from_ms, max(of_topic, default=now_ms))

    def _offsets(
        self, topic: str, since_ms: int
    ) -> tuple[dict[int, int], dict[int, int], dict[int, int]]:
        """First, start and end offset of each partition."""
        metadata = self._admin.list_topics(topic, ANSWER_SECONDS).topics[topic]
        if metadata.error is not None:
            raise KafkaException(metadata.error)
        partitions = metadata.partitions
        level = IsolationLevel.READ_COMMITTED
        first = list_offsets(self._admin, topic, partitions, EARLIEST)
        end = list_offsets(self._admin, topic, partitions, LATEST, level)
        start = list_offsets(self._admin, topic, partitions, at_time(since_ms))
        return first, {p: end[p] if start[p] < 0 else start[p] for p in start}, end

    def _is_over(self, bytes_max: int) -> bool:
        if self._caller_gone.is_set():
            raise CancelledError("the caller closed the connection")
        return time.monotonic() >= self._ends_at or self._bytes >= bytes_max


_NO_GROUP = KafkaError.GROUP_AUTHORIZATION_FAILED


def _may_have_key(side: SidePlan, key: Sequence[str]) -> Callable[[Message], bool]:
    """A quick check that a record may have the key: most records do not contain its text.

    It covers JSON values whose key is a column with a plain text or a number. A record passes if
    its value, or its record key, contains the text of each part.
    """
    is_plain = side.format is Format.JSON and all(
        part.is_column and _PLAIN.fullmatch(text) and part.type.name in {"STRING", "BIGINT", "INT"}
        for part, text in zip(side.key, key, strict=True)
    )
    uses_record = any(name.startswith("record_") for part in side.key for _, name in part.columns)
    if not is_plain or uses_record or side.computed:
        return lambda _: True
    texts = [(text.lstrip("+-0") or "0").encode() for text in key]
    is_text = all(part.type.name == "STRING" for part in side.key)
    other_spelling = _ESCAPE if is_text else _ESCAPE_OR_EXPONENT

    def may_have_key(message: Message) -> bool:
        value = (bytes_of(message.value()) or b"").strip()
        if not (value.startswith(b"{") and value.endswith(b"}")):
            return True  # A bad record, whose key may be missing.
        content = value + (bytes_of(message.key()) or b"")
        return all(text in content for text in texts) or other_spelling.search(content) is not None

    return may_have_key


def input_record(side: SidePlan, message: Message) -> InputRecord:
    topic, partition, offset = placed(message)
    kind, at_ms = message.timestamp()
    key = bytes_of(message.key())
    return InputRecord(
        value=bytes_of(message.value()),
        offset=offset,
        partition=partition,
        key=None if key is None else key.decode(errors="surrogateescape"),
        timestamp_us=at_ms * 1000 if kind else None,
        topic=topic,
        headers=header_texts(headers_of(message)),
        number=side.topics.number(topic, partition),
    )


def _records_of(headers: Sequence[tuple[str, bytes | None]]) -> Mapping[Side, Place] | None:
    """With the record of a table. None: the record has no id of a result."""
    named = dict(headers)
    found = places((named.get(ID_HEADER) or b"").decode(errors="replace"))
    of_table = parsed_place((named.get(MATCH_HEADER) or b"").decode(errors="replace"))
    if found is None or of_table is None:
        return found
    [stream] = found
    return {**found, OTHER_SIDE[stream]: of_table}


def name_rows(found: KeyTopics, known: Collection[RowId], limit: int) -> None:
    """Set `named`: rows that are not `known`, at most `limit` of each side."""
    rows = {*found.letters, *(row for each in found.results for row in each.records.items())}
    for side in SIDES:
        of_side = sorted(row for row in rows if row[0] == side and row not in known)
        found.named += of_side[-limit:]
        found.not_named[side] = max(0, len(of_side) - limit)


def add_letter(
    letter: DeadLetter,
    headers: Sequence[tuple[str, bytes | None]],
    of_key: set[RowId],
    record_key: bytes | None,
    found: KeyTopics,
) -> None:
    """`letter`: of this join."""
    shown = Letter(letter.reason, letter.message, letter.place)
    if letter.side == "output":
        records = _records_of(headers) or {}
        if not of_key.isdisjoint(records.items()):
            found.result_letters[frozenset(records.items())] = shown
        return
    for side in SIDES:
        row = (side, Place(letter.topic, letter.partition, letter.offset))
        # A record whose value is not read is selected by the key of the Kafka record.
        is_unread = letter.reason in _UNREADABLE and record_key is not None
        has_key = row in of_key or (is_unread and letter.key == record_key)
        if letter.side == side and has_key:
            found.letters[row] = shown
