"""Reads and registers schemas over Confluent's API, which Apicurio and Karapace also implement.

Five requests with the standard library: the client in confluent-kafka adds httpx, authlib and
four more packages, and retries on its own. Here the query runner retries, and counts the retries.
"""

import base64
import json
import ssl
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from http.client import HTTPException, HTTPMessage
from pathlib import Path
from typing import IO, Any
from urllib.parse import quote

from job.errors import RegistryError, SecurityError
from job.formats.schemas import (
    IncompatibleError,
    OutputSchema,
    RegisteredSchema,
    UnknownSchemaError,
)
from job.spec.registry import SchemaRegistrySpec
from job.spec.value_format import Format

ANSWER_SECONDS = 10.0
_ANSWER_BYTES_MAX = 10_000_000
_RESPONSE_CHARS_MAX = 300
# Confluent's codes for an unknown subject, version and schema. Any other 404 does not come from the
# registry, but for example from a proxy while the registry restarts.
_UNKNOWN = frozenset({40401, 40402, 40403})
_INCOMPATIBLE, _INVALID = 409, 422
_BELOW_A_PATH = "Confluent's API may have a base path, e.g. /apis/ccompat/v7"


@dataclass(frozen=True)
class RegistryAccess:
    """Address and credentials of the registry, read from their files. Sent to the executors."""

    url: str
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    ca: str | None = None

    @property
    def secrets(self) -> list[str]:
        """Values that redaction.py removes from all output."""
        if self.password is None:
            return []
        return [self.password, self._login]

    @property
    def _login(self) -> str:
        return base64.b64encode(f"{self.username}:{self.password}".encode()).decode()

    @property
    def headers(self) -> dict[str, str]:
        accept = {"Accept": "application/vnd.schemaregistry.v1+json, application/json"}
        return accept | ({} if self.password is None else {"Authorization": f"Basic {self._login}"})


def registry_access(spec: SchemaRegistrySpec | None) -> RegistryAccess | None:
    """Read the files named in `spec`. Raises SecurityError if one cannot be used."""
    if spec is None:
        return None
    password = _text(spec.password_file, "password_file")
    if spec.password is not None:
        password = spec.password.get_secret_value()
    ca = _text(spec.ca_file, "ca_file")
    if ca is not None and "-----BEGIN CERTIFICATE-----" not in ca:
        raise SecurityError(
            f"schema_registry.ca_file {spec.ca_file} does not contain "
            "`-----BEGIN CERTIFICATE-----`: it must be PEM"
        )
    return RegistryAccess(spec.url, spec.username, password, ca)


def latest_schema(access: RegistryAccess, subject: str) -> tuple[int, RegisteredSchema]:
    """Newest version number of a subject, and its schema.

    Raises UnknownSchemaError if the subject does not exist, RegistryError or SecurityError if the
    registry does not answer.
    """
    answer = _answer(access, f"/subjects/{quote(subject, safe='')}/versions/latest")
    return int(answer["version"]), _schema(access, int(answer["id"]), answer)


@lru_cache(maxsize=1_000)
def schema_by_id(access: RegistryAccess, schema_id: int) -> RegisteredSchema:
    """Schema of an id; errors as in latest_schema. Cached, because the schema of an id never
    changes. An unknown id is not cached: it may be registered later."""
    return _schema(access, schema_id, _answer(access, f"/schemas/ids/{schema_id}"))


def register_schema(access: RegistryAccess, schema: OutputSchema) -> int:
    """Id of the schema; a subject that has the schema gets no new version.

    Raises IncompatibleError with the reason of the registry if the subject refuses the schema;
    other errors as in latest_schema.
    """
    path = f"/subjects/{quote(schema.subject, safe='')}/versions"
    return int(_answer(access, path, sent=_sent(schema), expected="id")["id"])


def check_compatible(access: RegistryAccess, schema: OutputSchema) -> None:
    """Raises IncompatibleError if the newest version of the subject refuses the schema. A subject
    that does not exist refuses none. Other errors as in latest_schema."""
    path = f"/compatibility/subjects/{quote(schema.subject, safe='')}/versions/latest?verbose=true"
    with suppress(UnknownSchemaError):
        answer = _answer(access, path, sent=_sent(schema), expected="is_compatible")
        if not answer["is_compatible"]:
            raise IncompatibleError("; ".join(answer.get("messages") or ["is_compatible is false"]))


def find_schema(access: RegistryAccess, schema: OutputSchema) -> int:
    """Id of the schema in its subject. Errors as in latest_schema."""
    path = f"/subjects/{quote(schema.subject, safe='')}"
    return int(_answer(access, path, sent=_sent(schema), expected="id")["id"])


def _sent(schema: OutputSchema) -> bytes:
    # Older registries do not know schemaType, and take every schema for Avro.
    kind = {} if schema.format is Format.AVRO else {"schemaType": schema.format.upper()}
    return json.dumps({"schema": schema.text, **kind}).encode()


def _schema(access: RegistryAccess, schema_id: int, answer: dict[str, Any]) -> RegisteredSchema:
    references = dict(_references(access, answer, seen=set()))
    # The registry omits schemaType for Avro.
    kind = str(answer.get("schemaType") or "AVRO")
    return RegisteredSchema(schema_id, kind, str(answer["schema"]), tuple(references.items()))


def _references(
    access: RegistryAccess, answer: dict[str, Any], seen: set[str]
) -> Iterator[tuple[str, str]]:
    """(name, text) of each reference, after the references that it needs itself."""
    for reference in answer.get("references") or ():
        if reference["name"] in seen:
            continue
        seen.add(reference["name"])
        subject, version = quote(reference["subject"], safe=""), int(reference["version"])
        schema = _answer(access, f"/subjects/{subject}/versions/{version}")
        yield from _references(access, schema, seen)
        yield reference["name"], str(schema["schema"])


def _answer(
    access: RegistryAccess, path: str, *, sent: bytes | None = None, expected: str = "schema"
) -> dict[str, Any]:
    """Answer to a GET request, or to a POST request with `sent`. It has the field `expected`."""
    headers = access.headers
    if sent is not None:
        headers |= {"Content-Type": "application/vnd.schemaregistry.v1+json"}
    request = urllib.request.Request(access.url + path, sent, headers)  # noqa: S310  # http or https, by the spec
    try:
        with _opener(access.ca).open(request, timeout=ANSWER_SECONDS) as response:
            content = response.read(_ANSWER_BYTES_MAX)
    except urllib.error.HTTPError as error:
        raise _refusal(access, path, error) from None
    except (OSError, HTTPException) as error:
        raise _no_answer(access, error) from None
    try:
        answer = json.loads(content)
    except ValueError:
        answer = None
    if not isinstance(answer, dict) or expected not in answer:
        raise RegistryError(
            f"schema registry {access.url} returns no {expected} for {path}: check "
            f"schema_registry.url. {_BELOW_A_PATH}"
        )
    return answer


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Follows no redirect: urllib would send the password to the new location."""

    def redirect_request(
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: HTTPMessage,
        newurl: str,
    ) -> None:
        del req, fp, code, msg, headers, newurl


@lru_cache(maxsize=4)
def _opener(ca: str | None) -> urllib.request.OpenerDirector:
    context = ssl.create_default_context(cadata=ca)
    return urllib.request.build_opener(urllib.request.HTTPSHandler(context=context), _NoRedirect())


def _refusal(
    access: RegistryAccess, path: str, error: urllib.error.HTTPError
) -> RegistryError | SecurityError | UnknownSchemaError | IncompatibleError:
    with error:
        response = error.read(_ANSWER_BYTES_MAX).decode(errors="replace")
    try:
        code = json.loads(response).get("error_code")
    except (ValueError, AttributeError):
        code = None
    response = " ".join(response.split())[:_RESPONSE_CHARS_MAX]
    if error.code == 404 and code in _UNKNOWN:
        return UnknownSchemaError(f"schema registry {access.url} does not have {path}")
    if error.code in {_INCOMPATIBLE, _INVALID}:
        return IncompatibleError(response)
    if error.code in {401, 403}:
        return SecurityError(
            f"schema registry {access.url} refuses {path} (HTTP {error.code}): correct "
            "username and password_file in schema_registry, or grant access, then `restart`"
        )
    return RegistryError(
        f"schema registry {access.url} answers {path} with HTTP {error.code} {response}: check "
        f"its health, and schema_registry.url. {_BELOW_A_PATH}"
    )


def _no_answer(access: RegistryAccess, error: Exception) -> RegistryError | SecurityError:
    reason = getattr(error, "reason", None) or error
    if isinstance(reason, ssl.SSLCertVerificationError):
        return SecurityError(
            f"no TLS with schema registry {access.url}: {reason.verify_message}. "
            "schema_registry.ca_file must contain the CA of its certificate, and the certificate "
            "must contain the host of the url"
        )
    return RegistryError(
        f"schema registry {access.url} does not answer ({reason}): check that it is "
        "running, and schema_registry.url",
    )


def _text(path: str | None, field_name: str) -> str | None:
    if path is None:
        return None
    where = f"schema_registry.{field_name} {path}"
    try:
        text = Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise SecurityError(f"{where} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError:
        raise SecurityError(f"{where} is not text in UTF-8") from None
    text = text if field_name == "ca_file" else text.removesuffix("\n").removesuffix("\r")
    if not text:
        raise SecurityError(f"{where} is empty")
    return text
