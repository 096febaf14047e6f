"""The rows in envelopes of Debezium that a spec opens."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

from job.formats.schemas import Shape
from job.plan.envelope_sql import CODES
from job.proposal.columns import Changes, Row, Table, with_columns
from job.semantics.json_lines import Json, Members
from job.spec.value_format import Operation

_OF_ENVELOPE = {"after", "op"}
"""Fields of each envelope."""


def opened(table: Table) -> Table:
    """The table of the rows in envelopes. The same table, if the values are none."""
    envelopes = [_envelope(row) for row in table.rows]
    if not _can_be_envelopes(table) or not all(each.keys() >= _OF_ENVELOPE for each in envelopes):
        return table
    operations = [_operation(each) for each in envelopes]
    counts = Counter(each for each in operations if each is not None)
    images = [_row(each) for each in envelopes]
    deleted = [
        frozenset(name for name, value in image.items() if value is not None)
        for image, operation in zip(images, operations, strict=True)
        if operation is Operation.DELETE and image is not None
    ]
    read = Changes(counts, [], frozenset()).read
    kept = [
        (record, image, envelope)
        for record, image, envelope, operation in zip(
            table.records, images, envelopes, operations, strict=True
        )
        if operation in read and image is not None
    ]
    if not kept:
        return table
    source_ms = [_members(envelope.get("source")).get("ts_ms") for _, _, envelope in kept]
    changes = Changes(counts, source_ms, frozenset.union(*deleted) if deleted else frozenset())
    rows: list[Row] = [image for _, image, _ in kept]
    table = replace(table, records=[record for record, _, _ in kept], rows=rows, changes=changes)
    # The columns of a registered schema are already those of the row.
    return table if table.reader is not None else with_columns(table)


def _can_be_envelopes(table: Table) -> bool:
    if table.format.has_registry:
        return table.reader is not None and table.reader.shape is Shape.ENVELOPE
    return table.format.has_envelopes


def _envelope(row: Row) -> Mapping[str, Json]:
    """With the schema of Kafka Connect's converter, it is the payload."""
    payload = row.get("payload")
    return dict(payload) if isinstance(payload, Members) and "schema" in row else row


def _operation(envelope: Mapping[str, Json]) -> Operation | None:
    """None: the record has no row, or is not one of Debezium."""
    code = envelope["op"]
    found = CODES.get(code) if isinstance(code, str) else None
    return found if isinstance(found, Operation) else None


def _row(envelope: Mapping[str, Json]) -> Mapping[str, Json] | None:
    name = "before" if envelope["op"] == "d" else "after"
    image = envelope.get(name)
    return dict(image) if isinstance(image, Members) else None


def _members(value: Json) -> dict[str, Json]:
    return dict(value) if isinstance(value, Members) else {}
