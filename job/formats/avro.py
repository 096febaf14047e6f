"""Avro: columns of a schema, and decoding by schema resolution (Avro 1.12, fastavro)."""

import json
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from io import BytesIO
from typing import Any

import fastavro
from fastavro.schema import SchemaParseException, UnknownType

from job.formats.avro_types import MICROS, kind_of, logical_of, not_null, sql_type_or_none
from job.formats.schemas import (
    PLAIN_COLUMN,
    Difference,
    IncompatibleError,
    ReaderSchema,
    RegisteredSchema,
    Shape,
    UnreadableError,
)
from job.formats.times import MICROS_A_MILLI, epoch_micros
from job.sql.types import BIGINT, STRING, TIMESTAMP, SqlType

# Promotions of schema resolution in the Avro specification.
_PROMOTIONS = {
    "int": {"long", "float", "double"},
    "long": {"float", "double"},
    "float": {"double"},
    "string": {"bytes"},
    "bytes": {"string"},
}


def fields(schema: RegisteredSchema, shape: Shape = Shape.RECORD) -> dict[str, SqlType | None]:
    """SQL type of each field. None: no SQL type fits.

    Raises IncompatibleError if the schema does not have the shape.
    """
    whole = _content(schema, shape)
    return _types(_row_of_envelope(whole, schema.id) if shape is Shape.ENVELOPE else whole)


def shape_of_key(schema: RegisteredSchema) -> Shape:
    """Raises IncompatibleError if the schema cannot be read."""
    return Shape.RECORD if kind_of(_whole(schema)) == "record" else Shape.PLAIN


def differences(writer: RegisteredSchema, reader: ReaderSchema) -> list[Difference]:
    """Reasons why `reader` cannot read values of `writer`. Empty: it can."""
    written = _content(writer, reader.shape)
    # The rows of an envelope have the same differences.
    return list(dict.fromkeys(_differences(written, _projected(reader), "the record")))


def record_differences(writer: RegisteredSchema, reader: RegisteredSchema) -> list[Difference]:
    """As `differences`, for all fields of both schemas."""
    return list(_differences(_record(writer), _record(reader), "the record"))


def decoding(writer: RegisteredSchema, reader: ReaderSchema) -> Callable[[bytes], dict[str, Any]]:
    """A function from the bytes after the schema id to columns; TIMESTAMPs in epoch microseconds.

    The function raises UnreadableError or IncompatibleError for a value. decoding() raises
    IncompatibleError if no value can be read.
    """
    _check_differences(writer, reader)
    written = _bare(_content(writer, reader.shape))
    read = None if writer == reader.schema else fastavro.parse_schema(_bare(_projected(reader)))
    parsed = fastavro.parse_schema(written)
    times = _times(reader)

    def decoded(payload: bytes) -> dict[str, Any]:
        source = BytesIO(payload)
        try:
            row: Any = fastavro.schemaless_reader(source, parsed, read)
        except fastavro.read.SchemaResolutionError as error:
            raise IncompatibleError(" ".join(str(error).split())) from None
        except Exception as error:  # corrupt lengths, counts and texts raise many types
            raise UnreadableError(f"not Avro of that schema ({error})") from None
        if (left := len(payload) - source.tell()) > 0:
            raise UnreadableError(f"{left} bytes remain after the value")
        _set_times(row, times)
        return row  # type: ignore[no-any-return]  # a record

    return decoded


def _set_times(row: dict[str, Any], times: Mapping[str, Any]) -> None:
    """Replace the times in `row` by epoch microseconds."""
    for name, unit in times.items():
        if isinstance(unit, int):
            row[name] = epoch_micros(row[name], unit)
        elif row[name] is not None:
            _set_times(row[name], unit)


def prepared(writer: RegisteredSchema, reader: ReaderSchema) -> dict[str, Any]:
    """The input of AvroReader.java for values of `writer`.

    Raises IncompatibleError if no value can be read.
    """
    _check_differences(writer, reader)
    return {
        "writer": _defined_once(_content(writer, reader.shape), set()),
        "reader": _defined_once(_projected(reader), set()),
        "micros": _times(reader),
    }


def _check_differences(writer: RegisteredSchema, reader: ReaderSchema) -> None:
    certain = [each.message for each in differences(writer, reader) if each.is_certain]
    if certain:
        raise IncompatibleError("; ".join(certain))


def _times(reader: ReaderSchema) -> dict[str, Any]:
    """The fields that are read as TIMESTAMP, and the microseconds per unit; of a record with such
    fields, a dictionary of them."""
    return _times_in(_projected(reader), reader.decoded)


def _times_in(record: dict[str, Any], struct: SqlType) -> dict[str, Any]:
    times: dict[str, Any] = {}
    for field in record["fields"]:
        schema, kind = not_null(field["type"]), struct.inside(field["name"])
        if kind == TIMESTAMP:
            times[field["name"]] = MICROS.get(logical_of(schema), MICROS_A_MILLI)
        elif kind.name == "STRUCT" and kind_of(schema) == "record":
            times[field["name"]] = _times_in(schema, kind)
    return times


def _content(schema: RegisteredSchema, shape: Shape) -> dict[str, Any]:
    """The record of a value or a key. A plain one becomes the only field of a record, which has the
    same bytes."""
    if shape is not Shape.PLAIN:
        return _record(schema)
    plain = {"name": PLAIN_COLUMN, "type": _whole(schema)}
    return {"type": "record", "name": "streamjoin.Plain", "fields": [plain]}


def _row_of_envelope(envelope: dict[str, Any], schema_id: int) -> dict[str, Any]:
    """The record of the row. IncompatibleError if the record is no envelope of Debezium."""
    parts = {field["name"]: not_null(field["type"]) for field in envelope["fields"]}
    before, after, source = (parts.get(name) for name in ("before", "after", "source"))
    are_records = all(each and kind_of(each) == "record" for each in (before, after, source))
    if not (
        are_records
        and _types(before) == _types(after)
        and _types(source).get("ts_ms") == BIGINT
        and sql_type_or_none(parts.get("op")) == STRING
    ):
        raise IncompatibleError(
            f"schema {schema_id} is no envelope of Debezium, a record with `before` and `after` "
            "(records of one type), `source` (a record with the long `ts_ms`) and the string `op`"
        )
    return after  # type: ignore[return-value]  # a record


def _types(record: Any) -> dict[str, SqlType | None]:
    return {field["name"]: sql_type_or_none(field["type"]) for field in record["fields"]}


def _record(schema: RegisteredSchema) -> dict[str, Any]:
    whole = _whole(schema)
    if not isinstance(whole, dict) or whole["type"] != "record":
        raise IncompatibleError(f"schema {schema.id} is not an Avro record")
    return whole


@lru_cache(maxsize=200)
def _whole(schema: RegisteredSchema) -> Any:
    """The schema with every named type expanded at each reference."""
    named: dict[str, Any] = {}
    try:
        for _, text in schema.references:
            fastavro.parse_schema(json.loads(text), named_schemas=named)
        parsed = fastavro.parse_schema(json.loads(schema.text), named_schemas=named)
    except (ValueError, SchemaParseException, UnknownType) as error:
        raise IncompatibleError(f"schema {schema.id} cannot be read as Avro: {error}") from None
    return _written_out(parsed, named, ())


def _written_out(schema: Any, named: dict[str, Any], within: tuple[str, ...]) -> Any:
    """Expand references, except of a recursive type to itself."""
    if isinstance(schema, list):
        return [_written_out(branch, named, within) for branch in schema]
    if isinstance(schema, str):
        known = schema in named and schema not in within
        return _written_out(named[schema], named, within) if known else schema
    whole = {name: value for name, value in schema.items() if not name.startswith("__")}
    if whole["type"] in {"record", "error"}:
        inner = (*within, whole["name"])
        whole["fields"] = [
            {**field, "type": _written_out(field["type"], named, inner)}
            for field in whole["fields"]
        ]
    for part in ("items", "values"):
        if part in whole:
            whole[part] = _written_out(whole[part], named, within)
    return whole


def _projected(reader: ReaderSchema) -> dict[str, Any]:
    """The reader schema with the selected fields only, so that other fields cannot fail."""
    projected: dict[str, Any] = _selected(_content(reader.schema, reader.shape), reader.decoded)
    return projected


def _selected(schema: Any, kind: SqlType) -> Any:
    """The schema with the fields of the type only."""
    if isinstance(schema, list):
        return [_selected(branch, kind) for branch in schema]
    if kind.name != "STRUCT" or kind_of(schema) != "record":
        return schema
    kinds = dict(kind.fields)
    taken = [
        {**field, "type": _selected(field["type"], kinds[field["name"]])}
        for field in schema["fields"]
        if field["name"] in kinds
    ]
    return {**schema, "fields": taken}


def _bare(schema: Any) -> Any:
    """Schema for fastavro: without logical types except decimal.

    Timestamps stay numbers, which is faster than datetime and supports years after 9999.
    """
    return _defined_once(schema, set(), keeps=frozenset({"decimal"}))


def _defined_once(schema: Any, seen: set[str], *, keeps: frozenset[str] | None = None) -> Any:
    """Schema with each named type defined at its first use. `keeps`: logical types; None: all."""
    if isinstance(schema, list):
        return [_defined_once(branch, seen, keeps=keeps) for branch in schema]
    if isinstance(schema, str):
        return schema
    if (name := schema.get("name")) is not None:
        if name in seen:
            return name
        seen.add(name)
    once = dict(schema)
    if keeps is not None and once.get("logicalType") not in keeps:
        once.pop("logicalType", None)
    for part in ("items", "values"):
        if part in once:
            once[part] = _defined_once(once[part], seen, keeps=keeps)
    if "fields" in once:
        once["fields"] = [
            {**field, "type": _defined_once(field["type"], seen, keeps=keeps)}
            for field in once["fields"]
        ]
    return once


def _differences(writer: Any, reader: Any, where: str) -> Iterator[Difference]:
    """Compare by the rules of schema resolution; `where` names the field."""
    if isinstance(writer, list) or isinstance(reader, list):
        yield from _of_unions(writer, reader, where)
        return
    written, read = kind_of(writer), kind_of(reader)
    if read != written and read not in _PROMOTIONS.get(written, ()):
        yield Difference(f"{where}: {written} cannot be read as {read}")
    elif written == read == "record":
        yield from _of_records(writer, reader, where)
    elif written == read == "enum":
        missing = sorted(set(writer["symbols"]) - set(reader["symbols"]))
        if missing and "default" not in reader:
            yield Difference(f"{where}: the enum has no {', '.join(missing)}", is_certain=False)
    elif written == read and read in {"array", "map"}:
        part = "items" if read == "array" else "values"
        yield from _differences(writer[part], reader[part], where)
    elif written == read == "fixed" and writer["size"] != reader["size"]:
        yield Difference(f"{where}: fixed({writer['size']}) cannot be read as {reader['size']}")
    if not _means_the_same(writer, reader):
        means, wanted = logical_of(writer) or written, logical_of(reader) or read
        yield Difference(f"{where}: {means} cannot be read as {wanted}")


def _means_the_same(writer: Any, reader: Any) -> bool:
    """Whether the logical types agree: Avro itself compares only the underlying types."""
    written, read = logical_of(writer), logical_of(reader)
    if written == read == "decimal":
        return bool(
            writer.get("scale", 0) == reader.get("scale", 0)
            and writer["precision"] <= reader["precision"]
        )
    return written == read or not {written, read} & {*MICROS, "decimal", "date"}


def _of_unions(writer: Any, reader: Any, where: str) -> Iterator[Difference]:
    written = writer if isinstance(writer, list) else [writer]
    read = reader if isinstance(reader, list) else [reader]
    read = sorted(read, key=lambda branch: branch == "null")  # its message is more useful
    failed = []
    for branch in written:
        by_branch = [list(_differences(branch, other, where)) for other in read]
        if all(by_branch):
            failed.append(by_branch[0][0].message)
    for message in failed:
        yield Difference(message, is_certain=len(failed) == len(written))


def _of_records(writer: Any, reader: Any, where: str) -> Iterator[Difference]:
    if _short(writer["name"]) not in map(_short, (reader["name"], *reader.get("aliases", ()))):
        yield Difference(f"{where}: record {writer['name']} cannot be read as {reader['name']}")
    written = {field["name"]: field for field in writer["fields"]}
    for field in reader["fields"]:
        names = (field["name"], *field.get("aliases", ()))
        source = next((written[name] for name in names if name in written), None)
        if source is not None:
            yield from _differences(source["type"], field["type"], f"field {field['name']}")
        elif "default" not in field:
            yield Difference(f"field {field['name']}: is missing and has no default")


def _short(name: str) -> str:
    return name.rpartition(".")[2]
