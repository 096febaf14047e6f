"""The YAML of a side of a proposed spec, with comments on what each proposal rests on."""

import json
from collections.abc import Iterator

from job.proposal.columns import Changes, Table
from job.proposal.fields import RECORD_KEY, is_unopened_envelope
from job.proposal.proposal import Proposal, scalar
from job.proposal.times import RECORD_TIMESTAMP, SOURCE_TIMESTAMP, EventTime
from job.proposal.zones import offset_text
from job.spec.csv import CsvSpec
from job.spec.durations import duration_text
from job.spec.sides import SIDES, Side
from job.spec.value_format import Format, Operation, RecordKeyFormat
from job.sql.questions import SqlError, SqlQuestions

_OTHERS_MAX = 5
"""Candidates in a comment."""
_MICROS = 1_000_000


def side_lines(proposal: Proposal, side: Side, sql: SqlQuestions) -> list[str]:
    table, times = proposal.tables[side], proposal.times[side]
    key = ", ".join(_in_list(pair[SIDES.index(side)]) for pair in proposal.keys)
    return [
        f"topic: {scalar(proposal.topics[side])}",
        *(_compacted_lines() if side in proposal.compacted else ()),
        *_format_lines(table),
        *([] if table.changes is None else _envelope_lines(table.changes, table)),
        *_schema_lines(proposal, side),
        *_comment_lines(table),
        *_key_format_lines(proposal, side, sql),
        f"key: [{key}]",
        f"event_time: {scalar(times.sql)}{_event_time_comment(times)}",
        *_time_zone_lines(times),
        *_other_times(proposal, side),
        *_delay_lines(proposal, side),
        *_rate_lines(proposal, side),
    ]


def _in_list(expression: str) -> str:
    """The expression as an element of a YAML list in one line."""
    text = scalar(expression)
    return json.dumps(expression, ensure_ascii=False) if "," in text and text[0] != '"' else text


def _compacted_lines() -> list[str]:
    return [
        "# The topic is compacted: usually it is a table with the newest record of each key. This",
        "# join is one of two streams: it joins a record only with those within match_window. To",
        "# join the newest record of a key, however old, write `table: latest` on this side, with",
        "# a key from record_key, and remove match_window and on_late_row.",
    ]


def _format_lines(table: Table) -> Iterator[str]:
    yield from (f"# {note}" for note in table.notes)
    if table.reader is not None:
        reader = table.reader
        yield f"format: {table.format}   # subject {reader.subject}, version {reader.version}"
    elif table.format is not Format.JSON:
        yield f"format: {table.format}"
    if table.csv is not None and table.csv != CsvSpec():
        settings = table.csv.model_dump(exclude_defaults=True)
        shown = ", ".join(f"{name}: {json.dumps(value)}" for name, value in settings.items())
        yield f"csv: {{{shown}}}"


def _envelope_lines(changes: Changes, table: Table) -> Iterator[str]:
    counts = ", ".join(f"{each} {changes.operations[each]}" for each in Operation)
    yield "envelope: debezium   # the row is `after`, and of a delete `before`"
    default = {Operation.CREATE, Operation.READ}
    if set(changes.read) == default:
        yield (
            f"# operations of the sample: {counts}. The join reads create and read, unless "
            "`operations` names others."
        )
    else:
        yield f"operations: [{', '.join(changes.read)}]   # of the sample: {counts}"
    missing = [name for name in table.columns if name not in changes.image_names]
    if changes.image_names and missing:
        names = ", ".join(json.dumps(name, ensure_ascii=False) for name in missing)
        yield f"# `before` of a delete lacks {names}: the database does not log whole rows."


def _schema_lines(proposal: Proposal, side: Side) -> list[str]:
    """The columns, unless the registry has the same, or the value is one column."""
    table, columns = proposal.tables[side], proposal.columns(side)
    is_known = table.reader is not None and columns == table.columns and not table.left_out
    if is_known or table.format is Format.TEXT:
        return []
    ddl = ", ".join(f"{proposal.quoted[name]} {kind}" for name, kind in columns.items())
    return [f"schema: {scalar(ddl)}"]


def _comment_lines(table: Table) -> Iterator[str]:
    """Comments on members of the values that are no columns, and on deletes."""
    if table.left_out:
        names = ", ".join(json.dumps(name) for name in table.left_out)
        reason = "the name" if table.reader is None else "the name or the type"
        yield f"# not in the schema, because no column can have {reason}: {names}"
    if table.is_connect:
        yield "# not in the schema: the member `schema` of Kafka Connect, which describes payload"
    if is_unopened_envelope(table):
        formats = ", ".join(sorted(each for each in Format if each.has_envelopes))
        yield "# Debezium: the row is `after`, null in deletes. A null key matches nothing."
        yield f"# `envelope: debezium` opens whole envelopes in {formats}, and not these."


def _key_format_lines(proposal: Proposal, side: Side, sql: SqlQuestions) -> Iterator[str]:
    """The format of the record keys, where an expression uses a part of them; else a comment."""
    keys = proposal.tables[side].keys
    if not keys.are_read:
        yield (
            f"# The record keys begin with the id {keys.schema_id} of a schema, and are no JSON: "
            f"as {RECORD_KEY}, `key_format: avro` or `protobuf` reads them by the registry, with "
            "the subject `key_subject`."
        )
    if keys.format is RecordKeyFormat.STRING:
        return
    lines, what = [f"key_format: {keys.format}", f"key_schema: {scalar(str(keys.type))}"], "JSON"
    if keys.reader is not None:
        lines, what = lines[:1], keys.format.name.capitalize()
    if not uses_typed_key(proposal, side, sql):
        yield f"# The record keys are {what}, for use as {RECORD_KEY}: {', '.join(lines)}"
    elif keys.reader is not None:
        yield f"{lines[0]}   # subject {keys.reader.subject}, version {keys.reader.version}"
    else:
        yield from lines


def uses_typed_key(proposal: Proposal, side: Side, sql: SqlQuestions) -> bool:
    """Whether an expression of the side uses the record key in its type."""
    keys = proposal.tables[side].keys
    texts = [pair[SIDES.index(side)] for pair in proposal.keys] + [proposal.times[side].sql]
    for text in texts:
        try:
            names = [[part.casefold() for part in name.parts] for name in sql.names(text)[1]]
        except SqlError:  # the planner reports it
            continue
        of_key = [parts[parts[0] == side :] for parts in names if RECORD_KEY in parts[:2]]
        # The bytes of a whole key in JSON are text; those of another format are none.
        is_text = keys.type.name == "STRUCT" and keys.reader is None
        if any(len(parts) > 1 or not is_text for parts in of_key):
            return True
    return False


def _event_time_comment(times: EventTime) -> str:
    if times.sql == RECORD_TIMESTAMP:
        return "   # Kafka's timestamp of the record"
    if times.sql == SOURCE_TIMESTAMP:
        return "   # of the change in the database; of the rows of a snapshot, of the snapshot"
    if times.nulls:
        records = f"{times.nulls} of {len(times.times)} records of the sample"
        return f"   # null in {records}: these are bad records, missing_event_time"
    return ""


def _time_zone_lines(times: EventTime) -> Iterator[str]:
    if times.zone is None:
        return
    minutes = times.offset_minutes
    if minutes is None:
        yield (
            f"# time_zone: the texts have no offset, and their zone is not known: {times.zone}. "
            "They are read as UTC: set time_zone if they are local times."
        )
    elif minutes == 0:
        yield f"# time_zone: UTC   # the texts have no offset, and UTC fits: {times.zone}"
    else:
        yield (
            f"time_zone: {scalar(offset_text(minutes))}   # the texts have no offset: {times.zone}."
            " Name the zone, e.g. Europe/Paris, if its clocks change."
        )


def time_without_offset(time: EventTime) -> str:
    """What is known of a text that is no event time, because it is in the future as UTC."""
    return f"without an offset: {time.zone}: needs time_zone"


def _other_times(proposal: Proposal, side: Side) -> list[str]:
    others = [
        time.sql if not time.is_future else f"{time.sql} ({time_without_offset(time)})"
        for time in proposal.other_times.get(side, ())
        if time.sql not in (proposal.times[side].sql, RECORD_TIMESTAMP)
    ]
    shown = json.dumps("; ".join(others[:_OTHERS_MAX]), ensure_ascii=False)[1:-1]
    return [f"# other times: {shown}"] if others else []


def _delay_lines(proposal: Proposal, side: Side) -> Iterator[str]:
    behind = proposal.disorder_us.get(side, 0)
    disorder = f"{behind / _MICROS:.3f}".rstrip("0").rstrip(".")
    delay = duration_text(proposal.watermark_delay(side))
    reason = f"rows of the sample are up to {disorder} s out of order"
    yield f"watermark_delay: {delay}   # {reason}; unmatched rows wait this long, too"


def _rate_lines(proposal: Proposal, side: Side) -> Iterator[str]:
    rate = proposal.rates.get(side)
    if rate is not None:
        count = len(proposal.tables[side].simulated)
        yield (
            f"expected_rate: {float(f'{rate:.2g}'):.10g}   # records per second of the newest "
            f"{count}; only for the estimate of `streamjoin plan`"
        )
