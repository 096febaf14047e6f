"""How the spec says that Kafka asks for TLS or a login. What is secret never shows in print.

Pure: files are only named here. job/kafka/security.py reads them, and speaks each client's dialect.
"""

import re
from collections.abc import Iterator
from enum import StrEnum
from typing import Annotated, Self
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    SecretStr,
    field_validator,
    model_validator,
)


class Protocol(StrEnum):
    PLAINTEXT = "PLAINTEXT"
    SSL = "SSL"
    SASL_PLAINTEXT = "SASL_PLAINTEXT"
    SASL_SSL = "SASL_SSL"

    @property
    def is_encrypted(self) -> bool:
        return self in {Protocol.SSL, Protocol.SASL_SSL}

    @property
    def has_login(self) -> bool:
        return self in {Protocol.SASL_PLAINTEXT, Protocol.SASL_SSL}


class Mechanism(StrEnum):
    PLAIN = "PLAIN"
    SCRAM_SHA_256 = "SCRAM-SHA-256"
    SCRAM_SHA_512 = "SCRAM-SHA-512"
    OAUTHBEARER = "OAUTHBEARER"


def text_without_controls(text: str) -> str:
    """Neither client's dialect can carry control characters; ValueError never repeats the text."""
    if any(character < " " or character == "\x7f" for character in text):
        raise ValueError("holds a control character, e.g. a line break or a NUL: leave it out")
    return text


def _secret_without_controls(secret: SecretStr) -> SecretStr:
    text_without_controls(secret.get_secret_value())
    return secret


Text = Annotated[str, Field(min_length=1), AfterValidator(text_without_controls)]
File = Annotated[str, Field(min_length=1)]
Secret = Annotated[SecretStr, Field(min_length=1), AfterValidator(_secret_without_controls)]

_LOGIN = ("username", "password", "password_file")
_OAUTH = ("client_id", "client_secret", "client_secret_file", "token_endpoint", "scope")
_TLS = ("ca_file", "certificate_file", "key_file", "key_password_file")


class KafkaSecurity(BaseModel):
    # A password may begin or end with a blank. Errors of pydantic would quote what was written.
    model_config = ConfigDict(
        frozen=True, extra="forbid", str_strip_whitespace=False, hide_input_in_errors=True
    )

    protocol: Protocol
    mechanism: Mechanism | None = None
    """How to log in, where the protocol begins with SASL."""
    username: Text | None = None
    password: Secret | None = None
    """From the environment, as `${KAFKA_PASSWORD}`; a file is safer."""
    password_file: File | None = None
    """Read at each start of the query; a line break at its end does not count."""
    ca_file: File | None = None
    """PEM: who may sign the brokers' certificates; left out, whom this machine trusts."""
    certificate_file: File | None = None
    """PEM: the certificate to show, then those that lead to its CA (mutual TLS)."""
    key_file: File | None = None
    """PEM: the certificate's private key."""
    key_password_file: File | None = None
    client_id: Text | None = None
    client_secret: Secret | None = None
    client_secret_file: File | None = None
    token_endpoint: Text | None = None
    """https://…, where OAUTHBEARER gets its tokens; its certificate is of a CA this machine
    trusts, whatever ca_file says."""
    scope: Text | None = None

    @field_validator("token_endpoint")
    @classmethod
    def _safe_url(cls, url: str | None) -> str | None:
        if url is None:
            return None
        # The URL goes onto a command line of Java, where a comma separates it from the next.
        if not re.fullmatch(r"[A-Za-z0-9._~:/?#@!&*+=%\[\]-]+", url):
            raise ValueError("holds a character that a URL must not: write it as %XX")
        try:
            parts = urlsplit(url)
            host = parts.hostname
        except ValueError as error:
            raise ValueError("is not a URL such as https://idp.example.org/token") from error
        if parts.username or parts.password:
            raise ValueError("holds a name or password: say client_id and client_secret_file")
        is_here = host in {"localhost", "127.0.0.1", "::1"}
        if not host or parts.scheme not in ({"https", "http"} if is_here else {"https"}):
            raise ValueError("must begin with https://, as the client's secret is sent there")
        return url

    @model_validator(mode="after")
    def _makes_sense(self) -> Self:
        problems = [*self._of_tls(), *self._of_login()]
        if problems:
            raise ValueError("; ".join(problems))
        return self

    def _of_tls(self) -> Iterator[str]:
        if not self.protocol.is_encrypted:
            yield from self._idle(_TLS, f"protocol {self.protocol} does not encrypt")
        for one, other in (("certificate_file", "key_file"), ("key_file", "certificate_file")):
            if self._has(one) and not self._has(other):
                yield f"{one} needs {other}: a client's certificate has a private key"
        if self._has("key_password_file") and not self._has("key_file"):
            yield "key_password_file needs key_file"

    def _of_login(self) -> Iterator[str]:
        if not self.protocol.has_login:
            wanted = "SASL_SSL" if self.protocol.is_encrypted else "SASL_PLAINTEXT"
            reason = f"protocol {self.protocol} has no login, {wanted} has"
            yield from self._idle(("mechanism", *_LOGIN, *_OAUTH), reason)
        elif self.mechanism is None:
            names = ", ".join(Mechanism)
            yield f"protocol {self.protocol} needs a mechanism, one of {names}"
        elif self.mechanism is Mechanism.OAUTHBEARER:
            yield from self._idle(_LOGIN, "OAUTHBEARER has no user's password")
            yield from self._required("client_id", "token_endpoint")
            yield from self._one_of("client_secret", "client_secret_file")
        else:
            yield from self._idle(_OAUTH, f"only OAUTHBEARER uses it, not {self.mechanism}")
            yield from self._required("username")
            yield from self._one_of("password", "password_file")

    def _has(self, field: str) -> bool:
        return getattr(self, field) is not None

    def _idle(self, fields: tuple[str, ...], reason: str) -> Iterator[str]:
        yield from (f"{field} has no effect: {reason}" for field in fields if self._has(field))

    def _required(self, *fields: str) -> Iterator[str]:
        yield from (f"{self.mechanism} needs {field}" for field in fields if not self._has(field))

    def _one_of(self, value: str, file: str) -> Iterator[str]:
        if self._has(value) and self._has(file):
            yield f"has {value} and {file}: keep one of them"
        elif not (self._has(value) or self._has(file)):
            yield f"{self.mechanism} needs {file} (or {value}: ${{VARIABLE}})"

    def __str__(self) -> str:
        """In a few words, for people."""
        if self.username or self.client_id:
            who = f", {self.mechanism} as {self.username or self.client_id}"
        else:
            who = f", with the certificate {self.certificate_file}" if self.key_file else ""
        return f"{self.protocol}{who}"
