"""Random Avro schemas, their later versions, and values."""

import copy
import random
from decimal import Decimal
from typing import Any

from tests.semantics.format_cases import FormatCase, corrupted
from tests.unit.formats import written
from tests.unit.formats.written import field, record

Schema = Any

_PRIMITIVES = ("boolean", "int", "long", "float", "double", "string", "bytes")
_WIDER = {
    "int": ("long", "float", "double"),
    "long": ("float", "double"),
    "float": ("double",),
    "string": ("bytes",),
    "bytes": ("string",),
}
_SYMBOLS = ["A", "B", "C"]
_FIELDS, _VALUES = 6, 4


def avro_case(seed: int) -> FormatCase:
    chance = random.Random(seed)
    source = _Source(chance)
    writer = record(*(field(f"f{n}", source.type(2)) for n in range(_FIELDS)))
    reader = record(*source.evolved_fields(writer["fields"]))
    valid = [
        written.avro(writer, **{f["name"]: source.value(f["type"]) for f in writer["fields"]})
        for _ in range(_VALUES)
    ]
    return FormatCase("AVRO", writer, reader, valid, [corrupted(each, chance) for each in valid])


def envelope_case(seed: int) -> FormatCase:
    """The row of `avro_case` in envelopes: of a delete, of another change, and without a row."""
    chance = random.Random(seed)
    row = avro_case(seed)
    writer, reader = (written.envelope(each) for each in (row.writer, row.reader))
    source = written.plain_avro(writer["fields"][2]["type"], {"db": "shop", "ts_ms": seed})
    # The index of a union's branch as a zigzag varint, `op`, and the index of `ts_ms`.
    images = [(b"\2" + row.valid[0], b"\0"), (b"\0", b"\2" + row.valid[1]), (b"\0", b"\0")]
    valid = [before + after + source + b"\2c" + b"\0" for before, after in images]
    return FormatCase("AVRO", writer, reader, valid, [corrupted(each, chance) for each in valid])


class _Source:
    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._names = 0

    def type(self, depth: int) -> Schema:
        kinds = ["primitive"] * 5 + ["enum", "fixed", "decimal", "logical"]
        kinds += ["array", "map", "record", "nullable", "nullable", "union"] if depth else []
        kind = self._chance.choice(kinds)
        if kind == "primitive":
            return self._chance.choice(_PRIMITIVES)
        if kind == "enum":
            return {"type": "enum", "name": self._name(), "symbols": list(_SYMBOLS)}
        if kind == "fixed":
            return {"type": "fixed", "name": self._name(), "size": 3}
        if kind == "decimal":
            return {"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2}
        if kind == "logical":
            name = self._chance.choice(("date", "timestamp-millis", "timestamp-micros"))
            top_level = depth == 2 or name == "date"
            under = "int" if name == "date" else "long"
            return {"type": under, "logicalType": name} if top_level else under
        if kind == "array":
            return {"type": "array", "items": self.type(depth - 1)}
        if kind == "map":
            return {"type": "map", "values": self.type(depth - 1)}
        if kind == "record":
            inner = (field(f"g{n}", self.type(depth - 1)) for n in range(2))
            return record(*inner, name=self._name())
        if kind == "union":
            return ["null", "int", "string"]
        branches = ["null", self._no_union(depth)]
        self._chance.shuffle(branches)
        return branches

    def _no_union(self, depth: int) -> Schema:
        while isinstance(kind := self.type(depth), list):
            pass
        return kind

    def _name(self) -> str:
        self._names += 1
        return f"shop.N{self._names}"

    def evolved_fields(self, fields: list[dict[str, Any]]) -> list[dict[str, Any]]:
        kept = [
            {**each, "type": self._evolved(copy.deepcopy(each["type"]))}
            for each in fields
            if self._chance.random() > 0.2
        ]
        for each in kept:
            if self._chance.random() < 0.2:
                each |= {"aliases": [each["name"]], "name": f"{each['name']}_new"}
        kept.append(field("more", ["null", "string"], default=None))
        kept.append(field("extra", {"type": "array", "items": "int"}, default=[1, 2]))
        self._chance.shuffle(kept)
        return kept

    def _evolved(self, kind: Schema) -> Schema:
        changes = self._chance.random() < 0.4
        if isinstance(kind, str):
            kind = self._chance.choice((kind, *_WIDER.get(kind, ()))) if changes else kind
            return ["null", kind] if self._chance.random() < 0.1 and kind != "null" else kind
        if isinstance(kind, list):
            if changes and len(kind) == 2:
                return next(branch for branch in kind if branch != "null")
            return ["null", "string"] if len(kind) == 3 else kind
        if kind["type"] == "enum" and changes:
            kind["symbols"] = ["A", "B"]
            if self._chance.random() < 0.5:
                kind["default"] = "A"
        elif kind["type"] == "array":
            kind["items"] = self._evolved(kind["items"])
        elif kind["type"] == "map":
            kind["values"] = self._evolved(kind["values"])
        elif kind["type"] == "record" and changes:
            kind["fields"] = kind["fields"][1:]
        return kind

    def value(self, kind: Schema) -> Any:
        chance = self._chance
        if isinstance(kind, list):
            return self.value(chance.choice(kind))
        name = kind if isinstance(kind, str) else kind["type"]
        if not isinstance(kind, str) and kind.get("logicalType") == "decimal":
            return Decimal(chance.randrange(-999_999, 1_000_000)).scaleb(-2)
        match name:
            case "null":
                return None
            case "boolean":
                return chance.random() < 0.5
            case "int":
                return chance.choice((0, -1, 2**31 - 1, -(2**31), chance.randrange(100)))
            case "long":
                return chance.choice((0, -1, 2**63 - 1, -(2**63), chance.randrange(2**40)))
            case "float":
                return chance.choice((0.5, -1.25, 3.0))
            case "double":
                return chance.choice((0.1, -1e300, 3.0))
            case "string":
                return chance.choice(("", "text", "Zürich ✓"))
            case "bytes":
                return chance.choice((b"", b"ab", bytes(range(128))))
            case "enum":
                return chance.choice(kind["symbols"])
            case "fixed":
                return chance.randbytes(kind["size"])
            case "array":
                return [self.value(kind["items"]) for _ in range(chance.randrange(3))]
            case "map":
                return {f"k{n}": self.value(kind["values"]) for n in range(chance.randrange(3))}
            case _:
                return {each["name"]: self.value(each["type"]) for each in kind["fields"]}
