"""Protobuf: columns of a message, and decoding by field numbers (google's protobuf, upb).

A schema in the registry is a .proto file, which protoc (grpcio-tools) compiles in this process. If
the file has several messages, the first one is read.
"""

from base64 import b64encode
from collections.abc import Callable, Iterator
from functools import lru_cache
from importlib.resources import as_file, files
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NoReturn

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass
from grpc_tools import protoc

from job.formats.schemas import (
    Difference,
    IncompatibleError,
    ReaderSchema,
    RegisteredSchema,
    Shape,
    UnmappedError,
    UnreadableError,
)
from job.formats.times import MICROS_A_MILLI, MICROS_A_SECOND, epoch_micros
from job.sql.types import (
    BIGINT,
    BINARY,
    BOOLEAN,
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

_F = FieldDescriptor
_SQL_TYPES = {
    _F.TYPE_BOOL: BOOLEAN,
    _F.TYPE_INT32: INT,
    _F.TYPE_SINT32: INT,
    _F.TYPE_SFIXED32: INT,
    _F.TYPE_INT64: BIGINT,
    _F.TYPE_SINT64: BIGINT,
    _F.TYPE_SFIXED64: BIGINT,
    _F.TYPE_UINT32: BIGINT,
    _F.TYPE_FIXED32: BIGINT,
    _F.TYPE_UINT64: decimal_type(20),
    _F.TYPE_FIXED64: decimal_type(20),
    _F.TYPE_FLOAT: FLOAT,
    _F.TYPE_DOUBLE: DOUBLE,
    _F.TYPE_STRING: STRING,
    _F.TYPE_BYTES: BINARY,
    _F.TYPE_ENUM: STRING,
}
# Pairs of types where the wire format lets the second read the first without loss.
_WIDER = {
    (_F.TYPE_INT32, _F.TYPE_INT64),
    (_F.TYPE_SINT32, _F.TYPE_SINT64),
    (_F.TYPE_UINT32, _F.TYPE_UINT64),
    (_F.TYPE_UINT32, _F.TYPE_INT64),
    (_F.TYPE_STRING, _F.TYPE_BYTES),
}
_TIMESTAMP = "google.protobuf.Timestamp"
_WRAPPERS = {
    f"google.protobuf.{kind}Value"
    for kind in (
        "Bool", "Int32", "Int64", "UInt32", "UInt64", "Float", "Double", "String", "Bytes"
    )
}  # fmt: skip
_FILE = "schema.proto"

Getter = Callable[[Any], Any]


def fields(schema: RegisteredSchema, shape: Shape = Shape.RECORD) -> dict[str, SqlType | None]:
    """SQL type of each field of the first message. None: no SQL type fits.

    Raises IncompatibleError if protoc rejects the schema.
    """
    assert shape is Shape.RECORD, "a side has no other shape in Protobuf"
    return {field.name: _sql_type_or_none(field) for field in _message(schema, (0,)).fields}


def shape_of_key(_: RegisteredSchema) -> Shape:
    return Shape.RECORD


def differences(writer: RegisteredSchema, reader: ReaderSchema) -> list[Difference]:
    """Reasons why `reader` cannot read values of `writer`. Empty: it can."""
    return list(_differences(_message(writer, (0,)), _message(reader.schema, (0,)), reader))


def message_differences(writer: RegisteredSchema, reader: RegisteredSchema) -> list[Difference]:
    """Reasons why the first message of `reader` cannot read the first message of `writer`."""
    return list(_differences(_message(writer, (0,)), _message(reader, (0,)), None))


def renumbered(before: RegisteredSchema, after: RegisteredSchema) -> list[str]:
    """Field numbers of the first message that are missing or have another name in `after`, as text.

    A later version could give a missing number to another field.
    """
    return list(_renumbered(_message(before, (0,)), _message(after, (0,))))


def decoding(writer: RegisteredSchema, reader: ReaderSchema) -> Callable[[bytes], dict[str, Any]]:
    """A function from the bytes after the schema id to columns; TIMESTAMPs in epoch microseconds.

    The function raises UnreadableError or IncompatibleError for a value. decoding() raises
    IncompatibleError if no value can be read.
    """
    wanted = _message(reader.schema, (0,))
    kind = GetMessageClass(wanted)
    getters = [
        (column.name, _getter(wanted.fields_by_name[column.name], column.type))
        for column in reader.columns.columns
    ]

    @lru_cache(maxsize=100)
    def refusal(indexes: tuple[int, ...]) -> str:
        return _refusal(_message(writer, indexes), wanted, reader)

    def decoded(payload: bytes) -> dict[str, Any]:
        indexes, start = message_indexes(payload)
        if why := refusal(indexes):
            raise IncompatibleError(why)
        message = kind()
        try:
            message.ParseFromString(payload[start:])
        except DecodeError as error:
            raise UnreadableError(f"not Protobuf of that schema: {error}") from None
        return {name: get(message) for name, get in getters}

    return decoded


def prepared(writer: RegisteredSchema, reader: ReaderSchema) -> dict[str, Any]:
    """The input of ProtobufReader.java for values of `writer`.

    Raises IncompatibleError if no value can be read.
    """
    wanted = _message(reader.schema, (0,))
    _, files = _compiled(reader.schema)
    refusals = {
        " ".join(map(str, indexes)): _refusal(_message(writer, indexes), wanted, reader)
        for indexes in _all_indexes(_compiled(writer)[1].file[-1].message_type, ())
    }
    micros = {
        column.name: MICROS_A_MILLI
        for column in reader.columns.columns
        if column.type == TIMESTAMP and wanted.fields_by_name[column.name].message_type is None
    }
    encoded = b64encode(files.SerializeToString()).decode()
    return {"files": encoded, "refusals": refusals, "micros": micros}


def _all_indexes(messages: Any, within: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """Indexes of messages and of their nested messages."""
    for number, message in enumerate(messages):
        yield (*within, number)
        yield from _all_indexes(message.nested_type, (*within, number))


def _refusal(written: Descriptor, wanted: Descriptor, reader: ReaderSchema) -> str:
    """Reason why values of the message `written` cannot be read. Empty: they can be read."""
    if written.full_name != wanted.full_name:
        return f"is a {written.full_name}, expected {wanted.full_name}"
    return "; ".join(each.message for each in _differences(written, wanted, reader))


def message_indexes(payload: bytes) -> tuple[tuple[int, ...], int]:
    """Indexes of the message in its file, and the position of the first byte of the message.

    Zigzag varints: the number of indexes, then each index. A single 0 means the first message.
    """
    count, at = _varint(payload, 0)
    if count == 0:
        return (0,), at
    if count > len(payload):
        raise UnreadableError("the message indexes after the schema id are truncated")
    indexes = []
    for _ in range(count):
        index, at = _varint(payload, at)
        indexes.append(index)
    return tuple(indexes), at


def _varint(payload: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while at < len(payload) and shift < 64:
        byte = payload[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), at
    raise UnreadableError("the message indexes after the schema id are truncated")


def _message(schema: RegisteredSchema, indexes: tuple[int, ...]) -> Descriptor:
    pool, files = _compiled(schema)
    described = files.file[-1]
    try:
        message: Any = described.message_type[_natural(indexes[0])]
        name = f"{described.package}.{message.name}" if described.package else message.name
        for index in indexes[1:]:
            message = message.nested_type[_natural(index)]
            name += f".{message.name}"
    except IndexError:
        raise IncompatibleError(f"schema {schema.id} has no message {list(indexes)}") from None
    return pool.FindMessageTypeByName(name)


def _natural(index: int) -> int:
    """Reject negative indexes, which Python would count from the end."""
    if index < 0:
        raise IndexError
    return index


@lru_cache(maxsize=200)
def _compiled(schema: RegisteredSchema) -> tuple[DescriptorPool, FileDescriptorSet]:
    """Pool with the schema and its references, and their descriptors; the schema's file is last."""
    with TemporaryDirectory() as name, as_file(files("grpc_tools") / "_proto") as well_known:
        folder, out = Path(name).resolve(), Path(name).resolve() / "descriptors"
        for path, text in (*schema.references, (_FILE, schema.text)):
            place = (folder / path).resolve()
            if not place.is_relative_to(folder):
                raise IncompatibleError(
                    f"schema {schema.id} refers to {path}, which is not a relative path"
                )
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(text, encoding="utf-8")
        options = [f"-I{folder}", f"-I{well_known}", "--include_imports"]
        if protoc.main(["protoc", *options, f"--descriptor_set_out={out}", _FILE]) != 0:
            raise IncompatibleError(
                f"schema {schema.id} cannot be compiled: protoc printed the reason"
            )
        compiled = FileDescriptorSet.FromString(out.read_bytes())
    pool = DescriptorPool()
    for file in compiled.file:
        pool.AddSerializedFile(file.SerializeToString())
    return pool, compiled


def _sql_type_or_none(field: FieldDescriptor) -> SqlType | None:
    try:
        return _sql_type(field, ())
    except UnmappedError:
        return None


def _sql_type(field: FieldDescriptor, within: tuple[str, ...]) -> SqlType:
    """`within`: names of the enclosing messages."""
    if _is_map(field):
        key, value = (field.message_type.fields_by_name[name] for name in ("key", "value"))
        if key.type != _F.TYPE_STRING:
            raise UnmappedError
        return map_of(STRING, _single_type(value, (*within, "")))
    if field.is_repeated:
        return array_of(_single_type(field, (*within, "")))
    return _single_type(field, within)


def _single_type(field: FieldDescriptor, within: tuple[str, ...]) -> SqlType:
    message = field.message_type
    if message is None:
        return _SQL_TYPES[field.type] if field.type in _SQL_TYPES else _unmapped()
    name = message.full_name
    if name == _TIMESTAMP:
        return _unmapped() if within else TIMESTAMP
    if name in _WRAPPERS:
        return _SQL_TYPES[message.fields_by_name["value"].type]
    if name in within or not message.fields:
        return _unmapped()
    return struct_of((each.name, _sql_type(each, (*within, name))) for each in message.fields)


def _unmapped() -> NoReturn:
    raise UnmappedError


def _is_map(field: FieldDescriptor) -> bool:
    message = field.message_type
    return message is not None and bool(message.GetOptions().map_entry)


def _getter(field: FieldDescriptor, wanted: SqlType | None) -> Getter:
    """A function from a message to the field's value. `wanted`: SQL type of its column."""
    name, value = field.name, _value(field, wanted)
    if _is_map(field):
        of_value = _value(field.message_type.fields_by_name["value"], None)
        return lambda message: {key: of_value(item) for key, item in getattr(message, name).items()}
    if field.is_repeated:
        return lambda message: [value(each) for each in getattr(message, name)]
    if field.has_presence:
        return lambda message: value(getattr(message, name)) if message.HasField(name) else None
    return lambda message: value(getattr(message, name))


def _value(field: FieldDescriptor, wanted: SqlType | None) -> Getter:
    """A function from a Protobuf value of the field to the value of its column."""
    message = field.message_type
    if field.enum_type is not None:
        names = {each.number: each.name for each in field.enum_type.values}
        # As Protobuf's JSON: a number without a name in this schema stays a number.
        return lambda number: names.get(number, str(number))
    if message is None:
        if wanted == TIMESTAMP:
            return lambda millis: epoch_micros(millis, MICROS_A_MILLI)
        return lambda value: value
    if message.full_name == _TIMESTAMP:
        return lambda at: epoch_micros(at.seconds * MICROS_A_SECOND + at.nanos // 1_000, 1)
    if message.full_name in _WRAPPERS:
        return lambda wrapper: wrapper.value
    getters = [(each.name, _getter(each, None)) for each in message.fields]
    return lambda inner: {name: get(inner) for name, get in getters}


def _differences(
    writer: Descriptor, reader: Descriptor, taken: ReaderSchema | None, within: str = ""
) -> Iterator[Difference]:
    """`taken`: compare only its columns. None: compare all fields."""
    for field in reader.fields:
        if taken is not None and field.name not in taken.columns.names:
            continue
        source = writer.fields_by_number.get(field.number)
        if source is None:
            continue
        where = f"field {within}{field.name} ({field.number})"
        same = source.type == field.type or (source.type, field.type) in _WIDER
        if source.is_repeated != field.is_repeated or not same:
            yield Difference(
                f"{where}: {_describe_type(source)} cannot be read as {_describe_type(field)}"
            )
        elif field.message_type is not None:
            inner = f"{within}{field.name}."
            yield from _differences(source.message_type, field.message_type, None, inner)


def _renumbered(before: Descriptor, after: Descriptor, within: str = "") -> Iterator[str]:
    for old in before.fields:
        field = after.fields_by_number.get(old.number)
        if field is None:
            yield f"number {old.number} is {within}{old.name}, which is missing"
        elif old.name != field.name:
            yield f"number {field.number} is {within}{old.name}, not {within}{field.name}"
        elif old.message_type is not None and field.message_type is not None:
            inner = f"{within}{field.name}."
            yield from _renumbered(old.message_type, field.message_type, inner)


def _describe_type(field: FieldDescriptor) -> str:
    kind = field.message_type.full_name if field.message_type is not None else _KINDS[field.type]
    return f"repeated {kind}" if field.is_repeated else kind


_KINDS = {
    number: name.removeprefix("TYPE_").lower()
    for name, number in vars(_F).items()
    if name.startswith("TYPE_")
}
