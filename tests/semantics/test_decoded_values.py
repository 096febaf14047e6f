"""The JVM decodes values into the same columns and reasons as fastavro and Google's library in
Python."""

import itertools
import struct
from collections import Counter
from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any

import pytest
from pyspark.sql import Row, SparkSession

from job.encoding.decoded_column import decoded_column, install_lookup
from job.errors import SpecError
from job.formats.decoder import Decoded, Decoder
from job.formats.registry import RegistryAccess, latest_schema
from job.formats.schemas import Shape
from job.spark.java_classes import java_class
from tests.polling import wait_until
from tests.registry_stub import RegistryStub
from tests.semantics.avro_cases import avro_case, envelope_case
from tests.semantics.format_cases import FormatCase
from tests.semantics.protobuf_cases import protobuf_case
from tests.unit.formats import written
from tests.unit.formats.written import field, framed, reader, record

CASES = 40
_NUMBERS = itertools.count()
MILLIS = {"type": "long", "logicalType": "timestamp-millis"}
MICROS = {"type": "long", "logicalType": "timestamp-micros"}


@pytest.fixture(scope="module")
def registry() -> Iterator[RegistryStub]:
    with RegistryStub() as stub:
        yield stub


def decoder_of(
    registry: RegistryStub,
    writer: Any,
    newest: Any,
    kind: str = "AVRO",
    shape: Shape = Shape.RECORD,
) -> tuple[Decoder, int]:
    """A decoder that reads with the schema `newest`, and the id of the schema `writer`."""
    subject = f"s{next(_NUMBERS)}"
    number = registry.register(subject, writer, kind)
    registry.register(subject, newest, kind)
    access = RegistryAccess(registry.url)
    return Decoder(reader(latest_schema(access, subject)[1], shape=shape), access), number


def decoded(spark: SparkSession, decoder: Decoder, *values: bytes) -> list[Row]:
    # As DATE, PySpark could not return days before year 1.
    fields = ", ".join(
        f"`{name}`: {str(kind).replace('TIMESTAMP', 'BIGINT').replace('DATE', 'INT')}"
        for name, kind in decoder.reader.decoded.fields
    )
    ddl = f"reason STRING, message STRING, schema_id BIGINT, columns STRUCT<{fields}>"
    rows = spark.createDataFrame([(value,) for value in values], "value BINARY")
    found = rows.select(decoded_column(spark, "value", decoder, ddl, ()).alias("decoded")).collect()
    return [row.decoded for row in found]


def comparable(value: Any) -> Any:
    """A value of fastavro or of a row, with numbers as FLOAT."""
    match value:
        case Row():
            return comparable(value.asDict())
        case dict():
            return {name: comparable(inner) for name, inner in value.items()}
        case list():
            return [comparable(inner) for inner in value]
        case bytearray():
            return bytes(value)
        case float() if abs(value) < 1e38:
            return struct.unpack("f", struct.pack("f", value))[0]
    return value


def expected_of(decoded: Decoded, decoder: Decoder) -> tuple[str | None, Any]:
    columns = decoded.columns
    if columns is None:
        return decoded.reason, None
    return None, comparable({name: columns[name] for name, _ in decoder.reader.decoded.fields})


@pytest.mark.parametrize(
    ("make", "cases"), [(avro_case, CASES), (protobuf_case, CASES), (envelope_case, CASES // 4)]
)
def test_random_values_are_those_that_python_decodes(
    spark: SparkSession, registry: RegistryStub, make: Callable[[int], FormatCase], cases: int
) -> None:
    shape = Shape.ENVELOPE if make is envelope_case else Shape.RECORD
    reasons: Counter[str | None] = Counter()
    stricter = 0
    for seed in range(cases):
        case = make(seed)
        try:
            decoder, number = decoder_of(registry, case.writer, case.reader, case.type, shape)
        except SpecError:
            continue  # the schema has a type that no column can have
        values = [framed(number, payload) for payload in (*case.valid, *case.corrupt)]
        expected = [expected_of(each, decoder) for each in decoder.decoded(values)]
        rows = decoded(spark, decoder, *values)
        found = [(row.reason, comparable(row.columns)) for row in rows]
        valid = len(case.valid)
        assert expected[:valid] == found[:valid], seed
        for want, got in zip(expected[valid:], found[valid:], strict=True):
            # fastavro reads some values that the specification excludes, e.g. a negative index.
            is_stricter = got == ("undecodable_value", None) != want
            stricter += is_stricter
            assert is_stricter or want == got, seed
        reasons.update(reason for reason, _ in found)
    assert {None, "undecodable_value", "incompatible_schema"} == {*reasons}
    assert min(reasons.values()) > cases / 5
    assert stricter < cases / 5


EVERY_TYPE = record(
    field("day", {"type": "int", "logicalType": "date"}),
    field("ms", MILLIS),
    field("us", ["null", MICROS]),
    field("cost", {"type": "fixed", "name": "d", "size": 2, "logicalType": "decimal",
                   "precision": 4, "scale": 2}),
    field("id", {"type": "string", "logicalType": "uuid"}),
)  # fmt: skip


def test_logical_types_have_the_values_of_their_columns(
    spark: SparkSession, registry: RegistryStub
) -> None:
    decoder, number = decoder_of(registry, EVERY_TYPE, EVERY_TYPE)
    bare = {**EVERY_TYPE, "fields": written.bare_fields(EVERY_TYPE)}
    row = {"day": 19_000, "cost": Decimal("-1.25"), "id": "x"}
    times = [{"ms": 1_500, "us": 1_500_001}, {"ms": 2**62, "us": None}, {"ms": -(2**63), "us": -1}]
    values = [framed(number, written.avro(bare, **row, **time)) for time in times]

    found = [row.columns.asDict() for row in decoded(spark, decoder, *values)]

    micros = [(1_500_000, 1_500_001), (2**63 - 1, None), (1 - 2**63, -1)]
    assert [{**row, "ms": ms, "us": us} for ms, us in micros] == found


def test_missing_fields_have_the_defaults_of_the_schema(
    spark: SparkSession, registry: RegistryStub
) -> None:
    newest = record(
        field("n", "long"),
        field("at", MILLIS, default=5),
        field("raw", "bytes", default="ÿ"),
        field("cost", {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2},
              default="\x01"),
        field("home", record(field("city", "string"), name="shop.City"), default={"city": "Ulm"}),
    )  # fmt: skip
    decoder, number = decoder_of(registry, record(field("n", "int")), newest)

    [row] = decoded(spark, decoder, framed(number, b"\x0e"))

    assert (7, 5_000, b"\xff", Decimal("0.01"), "Ulm") == (
        row.columns.n, row.columns.at, row.columns.raw, row.columns.cost, row.columns.home.city
    )  # fmt: skip


def test_nullable_timestamp_in_another_unit_is_incompatible(
    spark: SparkSession, registry: RegistryStub
) -> None:
    old, newest = (record(field("at", ["null", kind])) for kind in (MILLIS, MICROS))
    decoder, number = decoder_of(registry, old, newest)

    null, time = decoded(spark, decoder, framed(number, b"\0"), framed(number, b"\x02\x02"))

    assert (None, None) == (null.reason, null.columns.at)
    assert "incompatible_schema" == time.reason
    expected = "field at: timestamp-millis cannot be read as timestamp-micros"
    assert time.message == f"schema {number}: {expected}"


NODE = record(field("next", ["null", "shop.Node"]), name="shop.Node")
SKIPPED = record(
    field("n", "long"),
    field("list", NODE),
    field("nulls", {"type": "array", "items": "null"}),
    field("text", "string"),
    field("counts", {"type": "map", "values": "int"}),
)
GARBAGE = {
    b"\x0e" + b"\x02" * 100_000: "too many nested records",
    b"\x0e\x00\xfe\xff\xff\xff\xff\xff\xff\xff\x7f": "items",
    b"\x0e\x00\x00\xfe\xff\xff\xff\x0f": "length 2147483647, and 0 bytes are left",
    b"\x0e\x00\x00\x01": "length -1, and 0 bytes are left",
    b"\xff" * 12: "a number has more than 10 bytes",
    # Blocks of 1,000,000 nulls.
    b"\x0e\x00" + b"\x80\x89\x7a" * 3: "items",
}


def test_garbage_in_fields_that_no_column_reads_takes_neither_time_nor_memory(
    spark: SparkSession, registry: RegistryStub
) -> None:
    decoder, number = decoder_of(registry, SKIPPED, record(field("n", "long")))

    found = decoded(spark, decoder, *(framed(number, payload) for payload in GARBAGE))

    for row, message in zip(found, GARBAGE.values(), strict=True):
        assert "undecodable_value" == row.reason
        assert message in row.message


def test_task_finds_a_schema_that_is_registered_while_it_runs(
    spark: SparkSession, registry: RegistryStub
) -> None:
    schema = record(field("n", "long"))
    decoder, _ = decoder_of(registry, schema, schema)
    install_lookup(spark, "running", decoder)
    ddl = "reason STRING, message STRING, schema_id BIGINT, columns STRUCT<n: BIGINT>"
    task = java_class(spark, "ValueDecoder")("running", ddl, "{}")
    value = framed(decoder.reader.schema.id + 1, b"\x0e")

    before = task.decode(value).getUTF8String(0).toString()
    registry.register("later", {**schema, "doc": "later"})

    assert "unknown_schema" == before
    wait_until(lambda: task.decode(value).isNullAt(0), 30, "the schema is requested again")
