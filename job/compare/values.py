"""Keys and values of results as text: equal if their contents are equal.

JSON is compared without the order of fields, and numbers by their value. Avro and Protobuf are
decoded with the schema with which they were written, so the id of the schema does not count.
"""

import json
from collections.abc import Callable
from decimal import MAX_EMAX, MAX_PREC, MIN_EMIN, Context, Decimal, DecimalException
from typing import Any

from job.formats.decoder import implementation, schema_id
from job.formats.registry import RegistryAccess, schema_by_id
from job.formats.schemas import (
    HEADER_BYTES,
    NO_SCHEMA_ID,
    IncompatibleError,
    ReaderSchema,
    RegisteredSchema,
    UnknownSchemaError,
    UnreadableError,
)
from job.spec.value_format import KeyFormat
from job.spec.value_schema import Column, ValueSchema

# Rounds no number that Python can read.
_EXACT = Context(prec=MAX_PREC, Emax=MAX_EMAX, Emin=MIN_EMIN)


class ContentReader:
    """Reads the keys, or the values, of one output topic."""

    def __init__(self, written: KeyFormat, registry: RegistryAccess | None) -> None:
        self.format = written
        self.as_bytes = 0
        """Contents that could not be decoded and are compared as bytes."""
        self.reason: str | None = None
        """Reason why the first of them could not be decoded. None: all were decoded."""
        self._registry = registry
        self._decoders: dict[int, Callable[[bytes], Any] | str] = {}

    def text(self, content: bytes | None) -> str | None:
        """Raises RegistryError or SecurityError if the registry is needed and does not answer."""
        if content is None:
            return None
        try:
            return _canonical(self._decoded(content))
        except (UnreadableError, IncompatibleError) as error:
            reason = str(error)
        except DecimalException:
            reason = f"a number has an exponent outside {MIN_EMIN} to {MAX_EMAX}"
        except (ValueError, ArithmeticError, RecursionError) as error:
            reason = f"not {self.format} ({error})"
        self.as_bytes += 1
        self.reason = self.reason or reason
        return f"0x{content.hex()}"

    def _decoded(self, content: bytes) -> Any:
        match self.format:
            case KeyFormat.STRING:
                return content.decode()
            case KeyFormat.JSON:
                return json.loads(content, parse_float=Decimal, parse_int=Decimal)
        number = schema_id(content)
        if number is None:
            raise UnreadableError(NO_SCHEMA_ID)
        if number not in self._decoders:
            self._decoders[number] = self._decoder(number)
        decode = self._decoders[number]
        if isinstance(decode, str):
            raise UnreadableError(decode)
        return decode(content[HEADER_BYTES:])

    def _decoder(self, number: int) -> Callable[[bytes], Any] | str:
        """A function from the bytes after the schema id, or the reason why the schema cannot be
        used."""
        assert self._registry is not None  # JoinSpec requires it
        try:
            schema = schema_by_id(self._registry, number)
            reader = self._reader(schema)
            return implementation(reader.format).decoding(schema, reader)
        except UnknownSchemaError as error:
            return str(error)
        except IncompatibleError as error:
            return f"schema {number}: {error}"

    def _reader(self, schema: RegisteredSchema) -> ReaderSchema:
        """All columns of the schema."""
        written = self.format.with_registry
        assert written is not None
        if schema.type != written.upper():
            raise IncompatibleError(f"has type {schema.type}, expected {written.upper()}")
        columns = []
        for name, kind in implementation(written).fields(schema).items():
            if kind is None:
                raise IncompatibleError(f"field {name} has no SQL type")
            columns.append(Column(name, kind))
        return ReaderSchema(written, "", 0, schema, ValueSchema(tuple(columns)))


def _canonical(content: Any) -> str:
    """As JSON, with sorted fields and one spelling of each number."""
    match content:
        case dict():
            fields = (
                f"{json.dumps(name)}: {_canonical(content[name])}" for name in sorted(content)
            )
            return f"{{{', '.join(fields)}}}"
        case list():
            return f"[{', '.join(map(_canonical, content))}]"
        case Decimal():
            return _number(content)
        case bytes():
            return f'"0x{content.hex()}"'
    return json.dumps(content)


def _number(number: Decimal) -> str:
    short = number.normalize(_EXACT)
    return f"{short:f}" if abs(short.adjusted()) < 40 else str(short)  # 1E+400 stays short
