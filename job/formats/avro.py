"""Avro: columns of a schema, and decoding by schema resolution (Avro 1.12, fastavro)."""

import json
from collections.abc import Callable, Iterator
from functools import lru_cache
from io import BytesIO
from typing import Any

import fastavro
from fastavro.schema import SchemaParseException, UnknownType

from job.formats.schemas import (
    Difference,
    IncompatibleError,
    ReaderSchema,
    RegisteredSchema,
    UnmappedError,
    UnreadableError,
)
from job.formats.times import MICROS_A_MILLI, epoch_micros
from job.sql.types import (
    BIGINT,
    BINARY,
    BOOLEAN,
    DATE,
    DOUBLE,
    FLOAT,
    INT,
    STRING,
    TIMESTAMP,
    SqlType,
    array_of,
    decimal_type,
    map_of,
    struct_of,
)

_PRIMITIVES = {
    "boolean": BOOLEAN,
    "int": INT,
    "long": BIGINT,
    "float": FLOAT,
    "double": DOUBLE,
    "string": STRING,
    "bytes": BINARY,
}
_MICROS = {"timestamp-millis": MICROS_A_MILLI, "timestamp-micros": 1}
_DECIMAL_DIGITS_MAX = 38
# Promotions of schema resolution in the Avro specification.
_PROMOTIONS = {
    "int": {"long", "float", "double"},
    "long": {"float", "double"},
    "float": {"double"},
    "string": {"bytes"},
    "bytes": {"string"},
}


def fields(schema: RegisteredSchema) -> dict[str, SqlType | None]:
    """SQL type of each field. None: no SQL type fits.

    Raises IncompatibleError if the schema is not a record.
    """
    return {field["name"]: _sql_type_or_none(field["type"]) for field in _record(schema)["fields"]}


def differences(writer: RegisteredSchema, reader: ReaderSchema) -> list[Difference]:
    """Reasons why `reader` cannot read values of `writer`. Empty: it can."""
    return list(_differences(_record(writer), _projected(reader), "the record"))


def record_differences(writer: RegisteredSchema, reader: RegisteredSchema) -> list[Difference]:
    """As `differences`, for all fields of both schemas."""
    return list(_differences(_record(writer), _record(reader), "the record"))


def decoding(writer: RegisteredSchema, reader: ReaderSchema) -> Callable[[bytes], dict[str, Any]]:
    """A function from the bytes after the schema id to columns; TIMESTAMPs in epoch microseconds.

    The function raises UnreadableError or IncompatibleError for a value. decoding() raises
    IncompatibleError if no value can be read.
    """
    _check_differences(writer, reader)
    written = _bare(_record(writer))
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
        for name, micros in times:
            row[name] = epoch_micros(row[name], micros)
        return row  # type: ignore[no-any-return]  # a record

    return decoded


def prepared(writer: RegisteredSchema, reader: ReaderSchema) -> dict[str, Any]:
    """The input of AvroReader.java for values of `writer`.

    Raises IncompatibleError if no value can be read.
    """
    _check_differences(writer, reader)
    return {
        "writer": _defined_once(_record(writer), set()),
        "reader": _defined_once(_projected(reader), set()),
        "micros": dict(_times(reader)),
    }


def _check_differences(writer: RegisteredSchema, reader: ReaderSchema) -> None:
    certain = [each.message for each in differences(writer, reader) if each.is_certain]
    if certain:
        raise IncompatibleError("; ".join(certain))


def _times(reader: ReaderSchema) -> list[tuple[str, int]]:
    """TIMESTAMP columns, and the microseconds per unit of their fields."""
    units = {
        field["name"]: _MICROS.get(_logical(_not_null(field["type"])), MICROS_A_MILLI)
        for field in _record(reader.schema)["fields"]
    }
    columns = reader.columns.columns
    return [(column.name, units[column.name]) for column in columns if column.type == TIMESTAMP]


@lru_cache(maxsize=200)
def _record(schema: RegisteredSchema) -> dict[str, Any]:
    """The schema with every named type expanded at each reference."""
    named: dict[str, Any] = {}
    try:
        for _, text in schema.references:
            fastavro.parse_schema(json.loads(text), named_schemas=named)
        parsed = fastavro.parse_schema(json.loads(schema.text), named_schemas=named)
    except (ValueError, SchemaParseException, UnknownType) as error:
        raise IncompatibleError(f"schema {schema.id} cannot be read as Avro: {error}") from None
    whole = _written_out(parsed, named, ())
    if not isinstance(whole, dict) or whole["type"] != "record":
        raise IncompatibleError(f"schema {schema.id} is not an Avro record")
    return whole


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
    record = _record(reader.schema)
    taken = [field for field in record["fields"] if field["name"] in reader.columns.names]
    return {**record, "fields": taken}


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


def _not_null(schema: Any) -> Any:
    """The other branch of a union with null; any other schema unchanged."""
    if isinstance(schema, list):
        others = [branch for branch in schema if branch != "null"]
        return others[0] if len(others) == 1 else schema
    return schema


def _kind(schema: Any) -> str:
    if isinstance(schema, list):
        return "union"
    return str(schema["type"] if isinstance(schema, dict) else schema)


def _logical(schema: Any) -> str:
    if not isinstance(schema, dict):
        return ""
    name = str(schema.get("logicalType", ""))
    if name == "decimal":
        # Avro ignores an invalid logical type.
        precision = schema.get("precision")
        is_valid = isinstance(precision, int) and precision > 0
        return name if is_valid and _kind(schema) in {"bytes", "fixed"} else ""
    return name


def _sql_type_or_none(schema: Any) -> SqlType | None:
    try:
        return _sql_type(_not_null(schema))
    except UnmappedError:
        return None


def _sql_type(schema: Any, *, inside: bool = False) -> SqlType:
    kind, logical = _kind(schema), _logical(schema)
    if logical == "decimal" and schema["precision"] <= _DECIMAL_DIGITS_MAX:
        return decimal_type(schema["precision"], schema.get("scale", 0))
    if logical in _MICROS and kind == "long" and not inside:
        return TIMESTAMP
    if logical == "decimal" or logical in _MICROS:
        raise UnmappedError
    if (kind, logical) == ("int", "date"):
        return DATE
    match kind:
        case "enum":
            return STRING
        case "fixed":
            return BINARY
        case "array":
            return array_of(_sql_type(_not_null(schema["items"]), inside=True))
        case "map":
            return map_of(STRING, _sql_type(_not_null(schema["values"]), inside=True))
        case "record" if schema["fields"]:
            return struct_of(
                (field["name"], _sql_type(_not_null(field["type"]), inside=True))
                for field in schema["fields"]
            )
    if kind not in _PRIMITIVES:
        raise UnmappedError
    return _PRIMITIVES[kind]


def _differences(writer: Any, reader: Any, where: str) -> Iterator[Difference]:
    """Compare by the rules of schema resolution; `where` names the field."""
    if isinstance(writer, list) or isinstance(reader, list):
        yield from _of_unions(writer, reader, where)
        return
    written, read = _kind(writer), _kind(reader)
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
        yield Difference(
            f"{where}: {_logical(writer) or written} cannot be read as {_logical(reader) or read}"
        )


def _means_the_same(writer: Any, reader: Any) -> bool:
    """Whether the logical types agree: Avro itself compares only the underlying types."""
    written, read = _logical(writer), _logical(reader)
    if written == read == "decimal":
        return bool(
            writer.get("scale", 0) == reader.get("scale", 0)
            and writer["precision"] <= reader["precision"]
        )
    return written == read or not {written, read} & {*_MICROS, "decimal", "date"}


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
