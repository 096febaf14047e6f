"""Records of a topic in a file: a line is a value, or a record with its metadata."""

import re
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import Any

from job.plan.side_plan import SidePlan
from job.plan.timestamp_sql import timestamp
from job.semantics.json_lines import Json, Members, Number, any_json, compact_text, valid_text
from job.spec.source_topics import PARTITIONS_MAX, SourceTopics
from job.sql.rows import SqlRows


@dataclass(frozen=True)
class InputRecord:
    """A record of a topic."""

    value: str | bytes | None
    offset: int
    partition: int = 0
    key: str | None = None
    timestamp_us: int | None = None
    """Kafka timestamp. None: not known, and no event time is too far ahead."""
    batch: int | None = None
    """Batch that reads the record. None: the input has no batch numbers."""
    topic: str | None = None
    """None: the side has one topic."""
    headers: tuple[tuple[str, str | None], ...] = ()
    number: int | None = None
    """Number of the partition among those of the side. None: the partition itself."""

    @property
    def partition_of_side(self) -> int:
        return self.partition if self.number is None else self.number


def content_bytes(content: str | bytes | None) -> bytes | None:
    """The value or the key of a record, whose text keeps it byte by byte."""
    return content.encode(errors="surrogateescape") if isinstance(content, str) else content


class InputLineError(ValueError):
    """A line or row that is not a record. The message contains line, problem and fix."""


def header_texts(
    headers: Iterable[tuple[str, bytes | None]],
) -> tuple[tuple[str, str | None], ...]:
    """The headers of a record, which the texts keep byte by byte."""
    return tuple(
        (name, None if content is None else content.decode(errors="surrogateescape"))
        for name, content in headers
    )


def records_of_jsonl(
    lines: Sequence[str], rows: SqlRows, side: SidePlan | None = None, unit: str = "line"
) -> list[InputRecord]:
    """The records of a JSONL file. `rows` reads the timestamps. `unit`: name of a line in messages
    of InputLineError.

    A line is the value of a record; or a whole record: an object of `value` and any of `key`,
    `partition`, `offset`, `timestamp` (as an event time is written), `headers` (an object of texts)
    and `batch`. There `value` may be an object, text (a value that is not JSON) or null (a
    tombstone).

    If the side has several topics, a whole record may also have `topic`. Without it the record is
    in the first topic.

    A line whose members are columns of the side is a value, whatever their names. A line that
    may be either is refused; `"record": true` in it makes it a whole record.

    If the side has a `key_format`, `key` may be any JSON: it is the key as JSON.

    If the values of the side are CSV or text, a line may also be a JSON string with the value, and
    is a whole record if its members are those of a record.
    """
    is_text = side is not None and side.format.is_text
    columns = {} if side is None or is_text else {c.name: c.type.name for c in side.schema.columns}
    topics = side.topics if side is not None and side.topics.are_several else None
    records: list[InputRecord] = []
    written: dict[int, tuple[str, int]] = {}
    """Timestamp, and number of the line, by index of the record."""
    for number, line in enumerate(lines, start=1):
        text = line.strip("\r\n")
        if not text.strip(" \t\r\n"):
            continue
        try:
            record, timestamp = _record(text, len(records), columns, topics, side)
        except InputLineError as error:
            raise InputLineError(f"{unit} {number}: {error}") from None
        if timestamp is not None:
            written[len(records)] = (timestamp, number)
        records.append(record)
    times = micros_of([text for text, _ in written.values()], rows)
    for (index, (text, number)), at in zip(written.items(), times, strict=True):
        if at is None:
            raise InputLineError(
                f"{unit} {number}: `timestamp` must be epoch milliseconds or ISO-8601, e.g. "
                f"2026-01-01T00:00:00Z (written: {_shown(text)})"
            )
        records[index] = replace(records[index], timestamp_us=at)
    return records


def micros_of(texts: Sequence[str], rows: SqlRows) -> list[int | None]:
    """Microseconds since 1970 of texts and numbers, as the job reads event times. None: no time."""
    if not texts:
        return []
    step = [f"unix_micros({timestamp('text')}) AS at"]
    program, store = rows.program("text STRING", [step], ["at"]), rows.store()
    answers = rows.run(program, [[text] for text in texts], keep_in=store)
    rows.drop(store)
    return [answer["at"] for answer in answers]


_MARK = "record"
_FIELDS = {"value", "key", "partition", "offset", "timestamp", "headers", "batch"}


def _record(
    text: str,
    number: int,
    columns: Mapping[str, str],
    topics: SourceTopics | None,
    side: SidePlan | None,
) -> tuple[InputRecord, str | None]:
    """The record, and its timestamp as it is written."""
    try:
        members = any_json(text)
    except ValueError:
        members = None
    is_text = side is not None and side.format.is_text
    if is_text and isinstance(members, str) and not isinstance(members, Number):
        return _of_topic(InputRecord(members, offset=number), {}, topics), None
    if not isinstance(members, Members) or not _is_whole_record(dict(members), columns, topics):
        return _of_topic(InputRecord(text, offset=number), {}, topics), None
    line = dict(members)
    value = line["value"]
    record = InputRecord(
        value if value is None or isinstance(value, str) else compact_text(value),
        offset=_whole_number(line, "offset", number),
        partition=_whole_number(line, "partition", 0),
        key=_json_key(line) if side is not None and side.has_typed_keys else _key(line),
        batch=_whole_number(line, "batch", None),
        headers=_headers(line),
    )
    return _of_topic(record, line, topics), _timestamp(line)


def _of_topic(
    record: InputRecord, line: Mapping[str, Json], topics: SourceTopics | None
) -> InputRecord:
    if topics is None:
        return record
    topic = line.get("topic", topics.names[0])
    if not isinstance(topic, str) or topic not in topics.names:
        raise InputLineError(f"`topic` must be one of {topics} (written: {_shown(topic)})")
    if record.partition >= PARTITIONS_MAX:
        raise InputLineError(f"`partition` must be below {PARTITIONS_MAX} with several topics")
    return replace(record, topic=topic, number=topics.number(topic, record.partition))


def _is_whole_record(
    line: Mapping[str, Json], columns: Mapping[str, str], topics: SourceTopics | None
) -> bool:
    """Whether a line is a whole record; InputLineError if it may also be a value."""
    allowed = _FIELDS if topics is None else _FIELDS | {"topic"}
    if line.get(_MARK) is True and _MARK not in columns:
        return _is_well_marked(line, allowed)
    value = line.get("value", _MISSING)
    if not set(line) <= allowed or not isinstance(value, Members | str | None):
        return False
    if isinstance(value, Number):
        return False
    names = set(line) & set(columns)
    if isinstance(value, Members):
        may_be_a_field = columns.get("value", "INT").startswith(("STRING", "STRUCT", "MAP"))
        if not may_be_a_field:
            return True
        if not {name for name, _ in value} & set(columns):
            return False
        is_clear = names == {"value"}
    else:
        if names == set(line):
            return False
        is_clear = not names
    if is_clear:
        return True
    raise InputLineError(
        f"may be the value of a record ({', '.join(sorted(names))} are columns of the side) or a "
        f'whole record: write {{"{_MARK}": true, "value": …}}, with the row as its value'
    )


def _is_well_marked(line: Mapping[str, Json], allowed: Set[str]) -> bool:
    unknown = sorted(set(line) - allowed - {_MARK})
    if unknown:
        raise InputLineError(
            f"has the unknown field {unknown[0]}: a record has {', '.join(sorted(allowed))}"
        )
    if "value" not in line or not isinstance(line["value"], Members | str | None):
        raise InputLineError("needs `value` in its record: an object, text or null")
    return True


def _whole_number(line: Mapping[str, Json], name: str, missing: Any) -> Any:
    """A number of the record; `missing` if the line has none."""
    if name not in line:
        return missing
    raw = line[name]
    if not isinstance(raw, Number) or not _WHOLE_NUMBER.fullmatch(raw):
        raise InputLineError(f"`{name}` must be a whole number, 0 or more (written: {_shown(raw)})")
    return int(raw)


def _key(line: Mapping[str, Json]) -> str | None:
    raw = line.get("key")
    if raw is None:
        return None
    if isinstance(raw, Number) or not isinstance(raw, str):
        raise InputLineError(f"`key` must be text or null (written: {_shown(raw)})")
    return valid_text(raw)


def _json_key(line: Mapping[str, Json]) -> str | None:
    raw = line.get("key")
    return None if raw is None else compact_text(raw)


def _timestamp(line: Mapping[str, Json]) -> str | None:
    raw = line.get("timestamp")
    if raw is None or isinstance(raw, str):
        return raw
    return compact_text(raw)


def _headers(line: Mapping[str, Json]) -> tuple[tuple[str, str | None], ...]:
    raw = line.get("headers", Members())
    if not isinstance(raw, Members) or not all(
        value is None or (isinstance(value, str) and not isinstance(value, Number))
        for _, value in raw
    ):
        raise InputLineError(
            f"`headers` must be an object of texts or nulls (written: {_shown(raw)})"
        )
    return tuple((name, value if value is None else valid_text(str(value))) for name, value in raw)


def _shown(raw: Json) -> str:
    text = compact_text(raw)
    return text if len(text) <= _SHOWN_CHARS_MAX else f"{text[:_SHOWN_CHARS_MAX]}…"


_SHOWN_CHARS_MAX = 40
_WHOLE_NUMBER = re.compile("[0-9]{1,18}")
_MISSING = ()
