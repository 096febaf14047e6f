"""A schema registry asked over Confluent's API, which others speak, too (Apicurio, Karapace).

Three GET requests by the standard library: the client in confluent-kafka brings httpx, authlib and
four packages more, and tries again by itself. Here the engine does that, and counts it.
"""

import base64
import json
import ssl
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from http.client import HTTPException, HTTPMessage
from pathlib import Path
from typing import IO, Any
from urllib.parse import quote

from job.errors import RegistryError, SecurityError
from job.formats.schemas import RegisteredSchema, UnknownSchemaError
from job.join_spec.registry import SchemaRegistrySpec

ANSWER_SECONDS = 10.0
_ANSWER_BYTES_MAX = 10_000_000
_SAID_CHARS_MAX = 300
# Confluent's codes for an unknown subject, version and schema. Any other 404 is not the registry's
# word: of a proxy, say, while the registry is restarted.
_UNKNOWN = frozenset({40401, 40402, 40403})
_BELOW_A_PATH = "Confluent's API may stand below a path, e.g. /apis/ccompat/v7"


@dataclass(frozen=True)
class RegistryAccess:
    """How to ask the registry, what the spec only names read in. Sent to the executors."""

    url: str
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    ca: str | None = None

    @property
    def secrets(self) -> list[str]:
        """What must not be repeated anywhere: see redaction.py."""
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
    """Read the files that `spec` names; SecurityError where one cannot be used."""
    if spec is None:
        return None
    password = _text(spec.password_file, "password_file")
    if spec.password is not None:
        password = spec.password.get_secret_value()
    ca = _text(spec.ca_file, "ca_file")
    if ca is not None and "-----BEGIN CERTIFICATE-----" not in ca:
        raise SecurityError(
            f"schema_registry.ca_file {spec.ca_file} holds no `-----BEGIN CERTIFICATE-----`: it "
            "must be PEM"
        )
    return RegistryAccess(spec.url, spec.username, password, ca)


def latest_schema(access: RegistryAccess, subject: str) -> tuple[int, RegisteredSchema]:
    """The newest version of a subject, and its schema.

    UnknownSchemaError where there is none, RegistryError (or SecurityError) where the registry
    gives no such answer.
    """
    answer = _answer(access, f"/subjects/{quote(subject, safe='')}/versions/latest")
    return int(answer["version"]), _schema(access, int(answer["id"]), answer)


@lru_cache(maxsize=1_000)
def schema_by_id(access: RegistryAccess, schema_id: int) -> RegisteredSchema:
    """As latest_schema. An id's schema never changes, so it is asked for once in a process; one
    that is unknown may be known later, and is asked for again."""
    return _schema(access, schema_id, _answer(access, f"/schemas/ids/{schema_id}"))


def _schema(access: RegistryAccess, schema_id: int, answer: dict[str, Any]) -> RegisteredSchema:
    references = dict(_references(access, answer, seen=set()))
    # Avro is not named where it is meant.
    kind = str(answer.get("schemaType") or "AVRO")
    return RegisteredSchema(schema_id, kind, str(answer["schema"]), tuple(references.items()))


def _references(
    access: RegistryAccess, answer: dict[str, Any], seen: set[str]
) -> Iterator[tuple[str, str]]:
    """(name, text), each behind those that it mentions itself."""
    for each in answer.get("references") or ():
        if each["name"] in seen:
            continue
        seen.add(each["name"])
        path = f"/subjects/{quote(each['subject'], safe='')}/versions/{int(each['version'])}"
        found = _answer(access, path)
        yield from _references(access, found, seen)
        yield each["name"], str(found["schema"])


def _answer(access: RegistryAccess, path: str) -> dict[str, Any]:
    request = urllib.request.Request(access.url + path, headers=access.headers)  # noqa: S310  # http or https, by the spec
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
    if not isinstance(answer, dict) or "schema" not in answer:
        raise RegistryError(
            f"schema registry {access.url} answers {path} with something that is no schema: is "
            f"schema_registry.url right? {_BELOW_A_PATH}"
        )
    return answer


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """urllib would take the password along to wherever it is sent."""

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
) -> RegistryError | SecurityError | UnknownSchemaError:
    with error:
        said = error.read(_ANSWER_BYTES_MAX).decode(errors="replace")
    try:
        code = json.loads(said).get("error_code")
    except (ValueError, AttributeError):
        code = None
    said = " ".join(said.split())[:_SAID_CHARS_MAX]
    if error.code == 404 and code in _UNKNOWN:
        return UnknownSchemaError(f"schema registry {access.url} knows no {path}")
    if error.code in {401, 403}:
        return SecurityError(
            f"schema registry {access.url} refuses {path} (HTTP {error.code}): put username and "
            "password_file in order in schema_registry, or ask whoever runs it, then `restart`"
        )
    return RegistryError(
        f"schema registry {access.url} answers {path} with HTTP {error.code} {said}: is it well, "
        f"and is schema_registry.url right? {_BELOW_A_PATH}"
    )


def _no_answer(access: RegistryAccess, error: Exception) -> RegistryError | SecurityError:
    reason = getattr(error, "reason", None) or error
    if isinstance(reason, ssl.SSLCertVerificationError):
        return SecurityError(
            f"no TLS with schema registry {access.url}: {reason.verify_message}. "
            "schema_registry.ca_file must hold the CA that signed its certificate, and the url "
            "call it by a name in that"
        )
    return RegistryError(
        f"schema registry {access.url} does not answer ({reason}): is it up, and is "
        "schema_registry.url right as seen from here?",
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
