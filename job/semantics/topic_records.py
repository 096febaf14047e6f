"""Values and keys as a topic has them: decoded as the job decodes them, for Spark's SQL."""

from collections.abc import Iterator, Sequence
from typing import Any

from job.formats.decoded_json import json_text
from job.formats.decoder import Decoder
from job.formats.registry import RegistryAccess
from job.formats.schemas import Part, ReaderSchema
from job.plan import record_sql
from job.plan.plan import JoinPlan
from job.plan.value_sql import DECODED, DECODED_KEY
from job.semantics.input_records import InputRecord, content_bytes
from job.spec.sides import Side

_FIELDS = {"reason": "STRING", "message": "STRING", "schema_id": "BIGINT", "row": "STRING"}
"""Columns for a decoded value or key: their names begin with that of the job's column."""


class TopicRecords:
    """Raises RegistryError or SecurityError if the registry is needed and does not answer."""

    def __init__(self, plan: JoinPlan, registry: RegistryAccess | None) -> None:
        """`registry`: required if values or keys have their schemas in a registry."""
        self._decoders: dict[Part, Decoder] = {}
        for part, reader in plan.readers.items():
            assert registry is not None, "the caller has access to it"
            self._decoders[part] = Decoder(reader, registry)

    def columns(self, side: Side) -> Iterator[str]:
        """DDL of the columns that follow those of a record."""
        for part, _ in self._of(side):
            yield from (f"{_column(part)}_{name} {kind}" for name, kind in _FIELDS.items())

    def steps(self, side: Side) -> Iterator[list[str]]:
        """Projections to the columns that the job's decoders give."""
        for part, decoder in self._of(side):
            yield _decoded(_column(part), decoder.reader)

    def values(self, side: Side, records: Sequence[InputRecord]) -> list[list[Any]]:
        """Those of `columns`, of each record."""
        rows: list[list[Any]] = [[] for _ in records]
        for part, decoder in self._of(side):
            contents = (content_bytes(each.key if part.is_key else each.value) for each in records)
            kinds = dict(decoder.reader.decoded.fields)
            for row, it in zip(rows, decoder.decoded(contents), strict=True):
                row += [it.reason, it.message, it.schema_id, json_text(it.columns, kinds)]
        return rows

    def _of(self, side: Side) -> Iterator[tuple[Part, Decoder]]:
        yield from (each for each in self._decoders.items() if each[0].side == side)


def _column(part: Part) -> str:
    return DECODED_KEY if part.is_key else DECODED


def _decoded(column: str, reader: ReaderSchema) -> list[str]:
    kind = record_sql.decoded_type(reader).partition("columns ")[2]
    values = {
        "reason": f"{column}_reason",
        "message": f"{column}_message",
        "schema_id": f"{column}_schema_id",
        "columns": f"from_json({column}_row, '{kind}')",
    }
    struct = ", ".join(f"'{name}', {sql}" for name, sql in values.items())
    fields = ", ".join(f"{column}_{name}" for name in _FIELDS)
    return [f"* EXCEPT ({fields})", f"named_struct({struct}) AS {column}"]
