"""Avro and Protobuf with broker, registry and job: schemas change, and the registry is unreachable.

Results are read by Confluent's own deserializers.
"""

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext

from deploy.local.kafka import EmbeddedKafka
from job.errors import SpecError
from job.formats import proto_schema
from job.formats.registration import ensure_registered
from job.formats.registry import RegistryAccess
from job.formats.schemas import OutputSchema
from job.spec.value_format import Format
from job.sql.types import BIGINT, BOOLEAN, STRING, SqlType, struct_of
from tests.encoded_values import message_class, plain, schema_id
from tests.integration.apicurio import Apicurio
from tests.integration.jobs import START_SECONDS, Job
from tests.integration.jvms import SharedJvm
from tests.integration.topics import Sent, consume_all, dead_letters, produce
from tests.polling import wait_until
from tests.unit.formats import written
from tests.unit.formats.written import field, framed, record
from tests.unit.specs import changed

T0 = 1_700_000_000_000
_PARTS = MessageField.VALUE, MessageField.KEY
NAME = "formats"
LEFT, RIGHT, OUT, PROTO_OUT, DEAD = (
    f"{NAME}.{part}" for part in ("left", "right", "out", "proto", "dead")
)
_SPEC = """
name: {name}
kafka: {{bootstrap_servers: "{servers}"}}
schema_registry: {{url: "{registry}"}}
left: {{topic: {name}.left, format: avro, key: [n], event_time: at, watermark_delay: 1 minute}}
right: {{topic: {name}.right, format: protobuf, key: [n], event_time: at,
  watermark_delay: 1 minute}}
join: {{type: inner, match_window: {{before: 1 minute, after: 1 minute}}}}
output:
  topic: {name}.out
  format: avro
  key: n
  key_format: avro
  columns: {{n: left.n, kind: left.kind, user: right.user, at: left.at}}
checkpoint: {checkpoint}
dead_letter: {{topic: {name}.dead}}
"""

_AVRO = record(
    field("n", "long"),
    field("at", {"type": "long", "logicalType": "timestamp-millis"}),
    field("kind", ["null", "string"], default=None),
    name="shop.Impression",
)
_WIDER = record(*_AVRO["fields"], field("more", "string", default=""), name="shop.Impression")
_OTHER = record(field("n", "string"), name="shop.Impression")
_PROTO = """syntax = "proto3";
package shop;
import "google/protobuf/timestamp.proto";
message Click {{ int64 n = 1; google.protobuf.Timestamp at = 2; optional string user = 3; {more} }}
"""
_CLICK, _WIDER_CLICK = _PROTO.format(more=""), _PROTO.format(more="string more = 4;")


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Apicurio]:
    with Apicurio(tmp_path_factory.mktemp("apicurio")) as apicurio:
        yield apicurio


class Shop:
    """Topics and registry of one join."""

    def __init__(self, kafka: EmbeddedKafka, registry: Apicurio) -> None:
        self.servers, self.registry = kafka.bootstrap_servers, registry
        self.kafka = kafka
        self.counts = {"left": 0, "right": 0}
        kafka.create_topics([LEFT, RIGHT, OUT, PROTO_OUT, DEAD], partitions=1)
        self.avro = registry.register(f"{LEFT}-value", _AVRO)
        self.proto = registry.register(f"{RIGHT}-value", _CLICK, "PROTOBUF")

    def send(self, side: str, *values: bytes | None) -> None:
        produce(self.servers, f"{NAME}.{side}", [Sent(value) for value in values])
        self.counts[side] += len(values)

    def left(self, number: int, n: int, schema: dict[str, Any] = _AVRO, **more: Any) -> bytes:
        return framed(number, written.avro(schema, n=n, at=T0 + n, kind=f"k{n}", **more))

    def right(self, number: int, n: int, text: str = _CLICK, **more: Any) -> bytes:
        at = (T0 + n) * 1_000
        return framed(number, written.proto(text, n=n, at=at, user=f"u{n}", **more))

    def results(self) -> list[dict[str, Any]]:
        """The results in Avro."""
        value, key = (SerializationContext(OUT, part) for part in _PARTS)
        with SchemaRegistryClient({"url": self.registry.url}) as client:
            read = AvroDeserializer(client)
            records = consume_all(
                self.servers, OUT, lambda data: read(data, value), lambda data: read(data, key)
            )
        assert [record.value["n"] for record in records] == [record.key for record in records]
        return sorted((record.value for record in records), key=lambda row: row["n"])

    def proto_results(self) -> list[tuple[dict[str, Any], dict[str, Any]]]:
        """Keys and values of the results in Protobuf."""
        records = consume_all(self.servers, PROTO_OUT, self._message, self._message)
        return [(record.key, record.value) for record in records]

    def _message(self, data: bytes) -> dict[str, Any]:
        kind = message_class(self.registry.schema(schema_id(data)))
        read = ProtobufDeserializer(kind, {"use.deprecated.format": False})
        row: dict[str, Any] = plain(read(data, SerializationContext(PROTO_OUT, _PARTS[0])))
        return row

    def dead(self) -> list[tuple[str, str, str]]:
        return [
            (letter.side, letter.reason, letter.message)
            for letter in dead_letters(self.kafka, DEAD)
        ]


def result(n: int) -> dict[str, Any]:
    at = datetime(2023, 11, 14, 22, 13, 20, n * 1_000, UTC)
    return {"n": n, "kind": f"k{n}", "user": f"u{n}", "at": at}


def test_avro_joins_protobuf_while_schemas_change_and_the_registry_is_away(
    kafka: EmbeddedKafka, registry: Apicurio, tmp_path: Path, jvm: SharedJvm
) -> None:
    shop = Shop(kafka, registry)
    spec = _SPEC.format(
        name=NAME, servers=shop.servers, registry=registry.url, checkpoint=tmp_path / "checkpoint"
    )
    with Job(spec, tmp_path, jvm) as job:
        shop.send("left", shop.left(shop.avro, 1))
        shop.send("right", shop.right(shop.proto, 1))
        _init_proposes_this_join(shop, job, tmp_path / "proposed.yaml")
        job.wait_for_offsets(**shop.counts)
        assert [result(1)] == shop.results()

        _schemas_change(shop)
        bad = _bad_records(shop)
        job.wait_for_offsets(**shop.counts)
        assert [result(1), result(2)] == shop.results()
        assert bad == sorted((side, reason) for side, reason, _ in shop.dead())
        _dead_letters_are_listed(job)

        _registry_goes_and_comes_back(shop, job)
        assert [result(1), result(2), result(3)] == shop.results()
        assert len(bad) == len(shop.dead())

        # The newest schema has changed, and reads all records of the first one. The results go to
        # another topic, in another format.
        assert 0 == job.terminate()
        avro_spec = job.spec_file.read_text()
        protobuf = {"topic": PROTO_OUT, "format": "protobuf", "key_format": "protobuf"}
        job.spec_file.write_text(
            changed(avro_spec, **{f"output__{name}": value for name, value in protobuf.items()})
        )
        job.start()
        shop.send("left", shop.left(shop.avro, 4))
        shop.send("right", shop.right(shop.proto, 4))
        job.wait_for_offsets(**shop.counts)
        assert [({"key": 4}, result(4))] == shop.proto_results()
        frozen = json.loads((tmp_path / "checkpoint" / "fingerprint.json").read_text())
        assert str(shop.avro) != frozen["settings"]["left.schema_id"]

        assert 0 == job.terminate()
        job.spec_file.write_text(avro_spec)
        _incompatible_output_is_refused(shop, job)


_TEXTS = """
name: texts
kafka: {{bootstrap_servers: "{servers}"}}
left:
  topic: texts.left
  format: csv
  csv: {{delimiter: ";"}}
  schema: at TIMESTAMP, kind STRING, cost DECIMAL(5,2)
  key_format: json
  key_schema: "STRUCT<n: BIGINT>"
  key: [record_key.n]
  event_time: at
  watermark_delay: 1 minute
right:
  topic: texts.right
  format: json_schema
  schema: at TIMESTAMP, user STRING
  key_format: json_schema
  key_schema: BIGINT
  key: [record_key]
  event_time: at
  watermark_delay: 1 minute
join: {{type: inner, match_window: {{before: 1 minute, after: 1 minute}}}}
output:
  topic: texts.out
  columns: {{n: right.record_key, kind: left.kind, cost: left.cost, user: right.user}}
checkpoint: {checkpoint}
dead_letter: {{topic: texts.dead}}
"""


def test_csv_joins_json_schema_on_typed_keys(
    kafka: EmbeddedKafka, tmp_path: Path, jvm: SharedJvm
) -> None:
    kafka.create_topics(
        [f"texts.{part}" for part in ("left", "right", "out", "dead")], partitions=1
    )
    user = framed(5, json.dumps({"at": T0, "user": "ada"}).encode())
    sent = {
        "left": [
            Sent(f'{T0};"a; ""b""";1.50', b'{"n": 7}'),
            Sent(f"{T0};x;1.505", b'{"n": 7}'),
            Sent(f"{T0};x;1\n{T0};y;2", b'{"n": 7}'),
            Sent("," * 30_000, b'{"n": 7}'),
        ],
        "right": [
            Sent(user, framed(6, b"7")),
            Sent(user, b"7"),
            Sent(user, framed(6, b'"7"')),
            Sent(b"{}", framed(6, b"7")),
        ],
    }
    for side, records in sent.items():
        produce(kafka.bootstrap_servers, f"texts.{side}", records)
    spec = _TEXTS.format(servers=kafka.bootstrap_servers, checkpoint=tmp_path / "checkpoint")
    with Job(spec, tmp_path, jvm) as job:
        job.wait_for_offsets(left=4, right=4)

    [result] = consume_all(kafka.bootstrap_servers, "texts.out")
    assert {"n": 7, "kind": 'a; "b"', "cost": 1.50, "user": "ada"} == result.value
    letters = dead_letters(kafka, "texts.dead")
    bad = [*sent["left"][1:], *sent["right"][1:]]
    assert {(each.payload, each.key) for each in bad} == {
        (each.value, each.key) for each in letters
    }
    no_line = "the value is not one line with 3 fields, or a quote in it is not escaped"
    no_digits = "1.505 does not fit: at most 3 digits before and 2 after the point"
    no_id = "does not begin with a byte 0 and the 4 of a schema's id"
    assert sorted((each.side, each.reason, each.message) for each in letters) == [
        ("left", "schema_mismatch", f"not of the declared type: cost DECIMAL(5,2) ({no_digits})"),
        ("left", "schema_mismatch", no_line),
        ("left", "schema_mismatch", no_line),
        ("right", "schema_mismatch", "the key is not of the type BIGINT"),
        ("right", "undecodable_value", f"the key {no_id}"),
        ("right", "undecodable_value", f"the value {no_id}"),
    ]


def _incompatible_output_is_refused(shop: Shop, job: Job) -> None:
    shop.registry.require_compatibility(f"{OUT}-value")
    text = job.spec_file.read_text()
    incompatible = text.replace("n: left.n", "n: cast(left.n AS STRING)")
    checkpoint = Path(yaml.safe_load(text)["checkpoint"])
    other = checkpoint.with_name("changed.yaml")
    other.write_text(changed(incompatible, checkpoint=str(checkpoint.with_name("changed"))))
    refused = job.command("change", str(job.spec_file), str(other))
    assert (2, False) == (refused.returncode, (checkpoint / "changed.json").exists())
    assert "output.subject: refuses the schema of the output columns" in refused.stderr

    job.spec_file.write_text(incompatible)
    job.start()
    failure = job.wait_for_state("FAILED").last_failure

    assert failure is not None
    assert failure.message.startswith("output.subject: refuses the schema of the output columns")
    assert "field n: long cannot be read as string" in failure.message
    assert [result(n) for n in (1, 2, 3)] == shop.results()


def test_incompatible_protobuf_is_refused_by_the_registry(registry: Apicurio) -> None:
    access = RegistryAccess(registry.url)

    def register(*columns: tuple[str, SqlType]) -> int | None:
        text = proto_schema.record_schema("tested", columns)
        return ensure_registered(OutputSchema(Format.PROTOBUF, "p", True, text, columns), access).id

    first = register(("a", BIGINT), ("b", struct_of([("x", STRING)])))
    registry.require_compatibility("p")
    assert first == register(("a", BIGINT), ("b", struct_of([("x", STRING)])))
    assert first != register(("a", BIGINT), ("b", struct_of([("x", STRING)])), ("c", BOOLEAN))

    with pytest.raises(SpecError, match=r"field a \(1\): int64 cannot be read as string"):
        register(("a", STRING), ("b", struct_of([("x", STRING)])), ("c", BOOLEAN))
    with pytest.raises(SpecError, match="number 2 is b, not c"):
        register(("a", BIGINT), ("c", BOOLEAN))


def _init_proposes_this_join(shop: Shop, job: Job, file: Path) -> None:
    brokers = ("--bootstrap-servers", shop.servers, "--schema-registry", shop.registry.url)
    ended = job.command(
        "init", str(file), *brokers, "--left", LEFT, "--right", RIGHT, "--no-prompts"
    )

    assert 0 == ended.returncode, ended.stderr
    assert f"left: 1 records of {LEFT} read, none bad" in ended.stdout
    proposed = yaml.safe_load(file.read_text())
    left, right = proposed["left"], proposed["right"]
    assert {"url": shop.registry.url} == proposed["schema_registry"]
    assert ("avro", ["n"], "at") == (left["format"], left["key"], left["event_time"])
    assert ("protobuf", ["n"], "at") == (right["format"], right["key"], right["event_time"])
    assert "In 1 pairs of the samples, right - left is 0.0 s to 0.0 s." in file.read_text()
    assert 0 == job.command("validate", str(file)).returncode


def _schemas_change(shop: Shop) -> None:
    avro = shop.registry.register(f"{LEFT}-value", _WIDER)
    proto = shop.registry.register(f"{RIGHT}-value", _WIDER_CLICK, "PROTOBUF")
    shop.send("left", shop.left(avro, 2, _WIDER, more="x"))
    shop.send("right", shop.right(proto, 2, _WIDER_CLICK, more="x"))


def _bad_records(shop: Shop) -> list[tuple[str, str]]:
    """The bad records that are sent, by side and reason."""
    other = shop.registry.register("other", _OTHER)
    bad = {
        "incompatible_schema": framed(other, written.avro(_OTHER, n="one")),
        "tombstone": None,
        "undecodable_value": framed(shop.avro, b"\xff"),
        "unknown_schema": framed(9_999_999, b"x"),
    }
    shop.send("left", *bad.values())
    shop.send("right", *{**bad, "undecodable_value": b"garbage"}.values())
    return [(side, reason) for side in ("left", "right") for reason in bad]


def _dead_letters_are_listed(job: Job) -> None:
    listed = job.command("dead-letters", "list", str(job.spec_file))

    assert 0 == listed.returncode, listed.stderr
    for line in (
        "left unknown_schema: schema 9999999 is not in the schema registry http://",
        "left incompatible_schema: schema",
        "field n: string cannot be read as long",
        "left undecodable_value: schema",
        "right incompatible_schema: schema",
        "has type AVRO, expected PROTOBUF",
        "right undecodable_value: does not begin with a byte 0",
        "left tombstone: the record has no value",
    ):
        assert line in listed.stdout


def _registry_goes_and_comes_back(shop: Shop, job: Job) -> None:
    number = shop.registry.register(f"{LEFT}-value", {**_WIDER, "doc": "newer"})
    shop.registry.freeze()
    shop.send("left", shop.left(number, 3, _WIDER, more="x"))
    shop.send("right", shop.right(shop.proto, 3))

    def failure() -> str | None:
        status = job.status()
        last = status.last_failure if status else None
        return last.message if last is not None and last.code == "registry" else None

    message = wait_until(failure, START_SECONDS, "the job reports that the registry is away")
    assert f"schema registry {shop.registry.url} does not answer" in message
    shop.registry.resume()
    job.wait_for_offsets(**shop.counts)
