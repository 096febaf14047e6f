"""Random Protobuf messages, their later versions, and values."""

import random
from typing import Any

from google.protobuf.message_factory import GetMessageClass

from job.formats import protobuf
from tests.semantics.format_cases import FormatCase, corrupted
from tests.unit.formats.written import proto_schema

_INTEGERS = (
    *("int32", "sint32", "sfixed32", "uint32", "fixed32"),
    *("int64", "sint64", "sfixed64", "uint64", "fixed64"),
)
_SCALARS = (*_INTEGERS, "bool", "float", "double", "string", "bytes", "Kind")
_KINDS = (
    *_SCALARS,
    *(f"optional {kind}" for kind in ("int32", "string", "Kind", "double")),
    *(f"repeated {kind}" for kind in ("int32", "uint64", "string", "Kind", "Inner")),
    *(f"map<string, {kind}>" for kind in ("int64", "string", "Kind", "Inner")),
    *("Inner", "google.protobuf.Timestamp"),
    *(f"google.protobuf.{kind}Value" for kind in ("Int64", "UInt64", "String", "Bool", "Bytes")),
)
_WIDER = {"int32": "int64", "sint32": "sint64", "uint32": "uint64", "string": "bytes"}
# Indexes of the first message in two spellings, of another message, of a nested message, of none.
_INDEXES = (b"\0", b"\0", b"\x02\0", b"\x02\x02", b"\x04\0\0", b"\x02\x08")
_FIELDS, _VALUES = 8, 4
_FILE = """syntax = "proto3";
package shop;
import "google/protobuf/timestamp.proto";
import "google/protobuf/wrappers.proto";
message Click {{
  enum Kind {{ NONE = 0; {kinds} }}
  message Inner {{ int32 n = 1; optional string text = 2; repeated Kind kinds = 3; }}
  {fields}
}}
message Other {{ int32 n = 1; }}
"""


def protobuf_case(seed: int) -> FormatCase:
    chance = random.Random(seed)
    kinds = {number: chance.choice(_KINDS) for number in range(1, _FIELDS + 1)}
    fields = {number: f"{kind} f{number} = {number};" for number, kind in kinds.items()}
    read = {
        number: f"{_WIDER.get(kind, kind) if chance.random() < 0.5 else kind} g{number} = {number};"
        for number, kind in kinds.items()
        if chance.random() < 0.8
    }
    read[99] = "optional int64 more = 99;"
    writer = _FILE.format(kinds="A = 1; B = 7;", fields=" ".join(fields.values()))
    reader = _FILE.format(
        kinds="A = 1;", fields=" ".join(chance.sample([*read.values()], len(read)))
    )
    message = GetMessageClass(protobuf._message(proto_schema(writer), (0,)))
    valid = []
    for _ in range(_VALUES):
        value = message()
        _fill(value, chance)
        valid.append(chance.choice(_INDEXES) + value.SerializeToString())
    return FormatCase(
        "PROTOBUF", writer, reader, valid, [corrupted(each, chance) for each in valid]
    )


def _fill(message: Any, chance: random.Random) -> None:
    for field in message.DESCRIPTOR.fields:
        if chance.random() < 0.2:
            continue
        value = getattr(message, field.name)
        if protobuf._is_map(field):
            for key in chance.sample(("a", "", "ü"), 2):
                inner = field.message_type.fields_by_name["value"]
                if inner.message_type is None:
                    value[key] = _scalar(inner, chance)
                else:
                    _fill(value[key], chance)
        elif field.is_repeated:
            for _ in range(chance.randrange(3)):
                if field.message_type is None:
                    value.append(_scalar(field, chance))
                else:
                    _fill(value.add(), chance)
        elif field.message_type is not None:
            value.SetInParent()
            _fill(value, chance)
        else:
            setattr(message, field.name, _scalar(field, chance))


def _scalar(field: Any, chance: random.Random) -> Any:
    if field.enum_type is not None:
        return chance.choice((0, 1, 7, 9))
    name = protobuf._KINDS[field.type]
    if name in _INTEGERS:
        bits = 32 if "32" in name else 64
        if name.startswith(("u", "f")):
            return chance.choice((0, 1, 2**bits - 1))
        return chance.choice((0, -1, 2 ** (bits - 1) - 1, -(2 ** (bits - 1))))
    values: dict[str, tuple[Any, ...]] = {
        "bool": (False, True),
        "float": (0.0, 0.5, -3.25),
        "double": (0.0, 0.1, -1e300),
        "string": ("", "text", "Zürich ✓"),
        "bytes": (b"", b"\xff\x00"),
    }
    return chance.choice(values[name])
