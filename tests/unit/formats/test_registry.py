"""What is asked of a registry, and what its answers mean. A stub stands in for it here; the
integration tests ask a real one."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from job.errors import RegistryError, SecurityError
from job.formats.registry import (
    RegistryAccess,
    latest_schema,
    registry_access,
    schema_by_id,
)
from job.formats.schemas import RegisteredSchema, UnknownSchemaError
from job.redaction import Redaction
from job.spec.registry import SchemaRegistrySpec
from tests.registry_stub import RegistryStub
from tests.unit.formats.written import CLICK, field, record


@pytest.fixture
def registry() -> Iterator[RegistryStub]:
    with RegistryStub() as stub:
        yield stub


def test_newest_version_of_a_subject_is_found(registry: RegistryStub) -> None:
    registry.register("a/b-value", record())
    registry.register("a/b-value", record(field("n", "int")))

    version, schema = latest_schema(RegistryAccess(registry.url), "a/b-value")

    assert (2, 2, "AVRO") == (version, schema.id, schema.type)


def test_schema_is_requested_once(registry: RegistryStub) -> None:
    number = registry.register("s", CLICK, "PROTOBUF")

    found = [schema_by_id(RegistryAccess(registry.url), number) for _ in range(3)]

    assert [RegisteredSchema(number, "PROTOBUF", CLICK)] * 3 == found
    assert [f"/schemas/ids/{number}"] == registry.asked


def test_references_follow_those_that_they_mention(registry: RegistryStub) -> None:
    registry.register("deep", "D")
    registry.register("middle", "M", references=[{"name": "d", "subject": "deep", "version": 1}])
    both = [
        {"name": "m", "subject": "middle", "version": 1},
        {"name": "d", "subject": "deep", "version": 1},
    ]
    number = registry.register("top", "T", references=both)

    schema = schema_by_id(RegistryAccess(registry.url), number)

    assert (("d", "D"), ("m", "M")) == schema.references


def test_unknown_schema_is_requested_again(registry: RegistryStub) -> None:
    access = RegistryAccess(registry.url)
    with pytest.raises(UnknownSchemaError, match="does not have /schemas/ids/1"):
        schema_by_id(access, 1)

    registry.register("s", "now")

    assert "now" == schema_by_id(access, 1).text


@pytest.mark.parametrize(
    ("status", "body", "error", "says"),
    [
        (404, "not found", RegistryError, "answers /schemas/ids/1 with HTTP 404 not found"),
        (404, '{"error_code": 404}', RegistryError, "HTTP 404"),
        (500, '{"error_code": 50001}', RegistryError, "HTTP 500"),
        (429, "slower", RegistryError, "HTTP 429 slower"),
        (200, "<html>", RegistryError, "returns no schema.*apis/ccompat/v7"),
        (200, "[]", RegistryError, "returns no schema"),
        (302, "http://127.0.0.1:1/", RegistryError, "HTTP 302"),
        (401, "", SecurityError, r"refuses /schemas/ids/1 \(HTTP 401\): correct username"),
        (403, "", SecurityError, "HTTP 403"),
    ],
)
def test_what_is_not_the_registrys_word_is_an_error(
    registry: RegistryStub, status: int, body: str, error: type[Exception], says: str
) -> None:
    registry.register("s", "S")
    registry.broken = (status, body)

    with pytest.raises(error, match=says) as raised:
        schema_by_id(RegistryAccess(registry.url), 1)

    assert registry.url in str(raised.value)


def test_registry_that_is_away_is_named_and_worth_another_try() -> None:
    with RegistryStub() as registry:
        url = registry.url

    with pytest.raises(RegistryError, match=f"{url} does not answer .*refused") as raised:
        schema_by_id(RegistryAccess(url), 1)

    assert raised.value.retryable


def test_login_goes_along_and_never_shows(registry: RegistryStub, tmp_path: Path) -> None:
    registry.register("s", "S")
    (tmp_path / "password").write_text("open sesame\n")
    spec = SchemaRegistrySpec(
        url=registry.url, username="ali", password_file=str(tmp_path / "password")
    )
    access = registry_access(spec)
    assert access is not None
    redaction = Redaction()
    redaction.add(access.secrets)

    schema_by_id(access, 1)

    login = registry.headers[0]["Authorization"]
    assert "Basic YWxpOm9wZW4gc2VzYW1l" == login
    assert "Basic [redacted], [redacted]" == redaction.scrubbed(f"{login}, open sesame")
    assert "sesame" not in repr(access)


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("password_file", None, "cannot be read: No such file"),
        ("password_file", b"\n", "is empty"),
        ("password_file", b"\xff", "is not text in UTF-8"),
        ("ca_file", b"no pem", "does not contain `-----BEGIN CERTIFICATE-----`"),
    ],
)
def test_file_that_cannot_be_used_is_named(
    tmp_path: Path, name: str, content: bytes | None, says: str
) -> None:
    path = tmp_path / "file"
    if content is not None:
        path.write_bytes(content)
    user = {"username": "ali"} if name == "password_file" else {}
    spec = SchemaRegistrySpec.model_validate(
        {"url": "https://registry.example.org", name: str(path), **user}
    )

    with pytest.raises(SecurityError, match=f"schema_registry.{name} {path} {says}"):
        registry_access(spec)
