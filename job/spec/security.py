"""Fields of the spec for TLS and login to Kafka. Secrets never appear in printed text.

Pure: this module only names files; job/kafka/security.py reads them and configures the clients.
"""

import re
from collections.abc import Iterator
from enum import StrEnum
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    ConfigDict,
    Field,
    SecretStr,
    field_validator,
)

from job.spec.frozen import Frozen


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
    AWS_MSK_IAM = "AWS_MSK_IAM"


def text_without_controls(text: str) -> str:
    """Neither Kafka client accepts control characters. The ValueError does not quote the text."""
    if any(character < " " or character == "\x7f" for character in text):
        raise ValueError("contains a control character, e.g. a line break or a NUL: remove it")
    return text


def _secret_without_controls(secret: SecretStr) -> SecretStr:
    text_without_controls(secret.get_secret_value())
    return secret


Text = Annotated[str, Field(min_length=1), AfterValidator(text_without_controls)]
File = Annotated[str, Field(min_length=1)]
Secret = Annotated[SecretStr, Field(min_length=1), AfterValidator(_secret_without_controls)]
Region = Annotated[str, Field(pattern=r"^[a-z]{2,5}(-[a-z]+)+-[0-9]+$")]
Role = Annotated[str, Field(pattern=r"^arn:aws[a-z-]*:iam::[0-9]{12}:role/[A-Za-z0-9+=,.@_/-]+$")]

_LOGIN = ("username", "password", "password_file")
_OAUTH = ("client_id", "client_secret", "client_secret_file", "token_endpoint", "scope")
_IAM = ("region", "role_arn")
_TLS = ("ca_file", "certificate_file", "key_file", "key_password_file")


class KafkaSecurity(Frozen):
    """TLS and login for all Kafka clients of the join."""

    # A password may begin or end with a blank.
    model_config = ConfigDict(str_strip_whitespace=False)

    protocol: Protocol
    """Kafka's `security.protocol`."""
    mechanism: Mechanism | None = None
    """Kafka's `sasl.mechanism`. Required with SASL_PLAINTEXT and SASL_SSL."""
    username: Text | None = None
    """User name. Required for PLAIN and SCRAM."""
    password: Secret | None = None
    """Password from the environment, as `${KAFKA_PASSWORD}`. `password_file` is safer."""
    password_file: File | None = None
    """File with the password, read at each start of the query without a final line break."""
    ca_file: File | None = None
    """PEM file with the CAs of the brokers' certificates. Omitted: the CAs of this machine."""
    certificate_file: File | None = None
    """PEM file with the client certificate and its chain, for mutual TLS."""
    key_file: File | None = None
    """PEM file with the private key of the client certificate."""
    key_password_file: File | None = None
    """File with the password of `key_file`. Omitted: the key is not encrypted."""
    client_id: Text | None = None
    """OAuth client id. Required for OAUTHBEARER."""
    client_secret: Secret | None = None
    """OAuth client secret from the environment. `client_secret_file` is safer."""
    client_secret_file: File | None = None
    """File with the OAuth client secret, read as `password_file`."""
    token_endpoint: Text | None = None
    """https URL of the OAuth token endpoint. Its certificate must come from a CA of this machine;
    `ca_file` does not apply."""
    scope: Text | None = None
    """OAuth scope of the token request. Omitted: none."""
    region: Region | None = None
    """AWS region of the MSK cluster, such as eu-west-1. Required for AWS_MSK_IAM."""
    role_arn: Role | None = None
    """IAM role that the credentials of the machine assume. Omitted: none."""

    @field_validator("token_endpoint")
    @classmethod
    def _safe_url(cls, url: str | None) -> str | None:
        if url is None:
            return None
        # The URL becomes part of a Java option, in which a comma separates URLs.
        if not re.fullmatch(r"[A-Za-z0-9._~:/?#@!&*+=%\[\]-]+", url):
            raise ValueError("contains a character that is invalid in a URL: write it as %XX")
        try:
            parts = urlsplit(url)
            host = parts.hostname
        except ValueError as error:
            raise ValueError("is not a URL such as https://idp.example.org/token") from error
        if parts.username or parts.password:
            raise ValueError("contains a user name or password: use client_id, client_secret_file")
        is_local = host in {"localhost", "127.0.0.1", "::1"}
        if not host or parts.scheme not in ({"https", "http"} if is_local else {"https"}):
            raise ValueError("must begin with https://: the client secret is sent to this URL")
        return url

    def contradictions(self) -> Iterator[str]:
        yield from self._tls_problems()
        yield from self._login_problems()

    def _tls_problems(self) -> Iterator[str]:
        if not self.protocol.is_encrypted:
            yield from self._without_effect(_TLS, f"protocol {self.protocol} does not encrypt")
        for field, other in (("certificate_file", "key_file"), ("key_file", "certificate_file")):
            if self._has(field) and not self._has(other):
                yield f"{field} needs {other}: mutual TLS needs a certificate and its private key"
        if self._has("key_password_file") and not self._has("key_file"):
            yield "key_password_file needs key_file"

    def _login_problems(self) -> Iterator[str]:
        if not self.protocol.has_login:
            wanted = "SASL_SSL" if self.protocol.is_encrypted else "SASL_PLAINTEXT"
            reason = f"protocol {self.protocol} has no login; use {wanted}"
            yield from self._without_effect(("mechanism", *_LOGIN, *_OAUTH, *_IAM), reason)
        elif self.mechanism is None:
            names = ", ".join(Mechanism)
            yield f"protocol {self.protocol} needs a mechanism, one of {names}"
        elif self.mechanism is Mechanism.AWS_MSK_IAM:
            yield from self._without_effect((*_LOGIN, *_OAUTH), "AWS_MSK_IAM has no such login")
            yield from self._required("region")
            if not self.protocol.is_encrypted:
                yield "AWS_MSK_IAM needs protocol SASL_SSL: MSK accepts it only over TLS"
        elif self.mechanism is Mechanism.OAUTHBEARER:
            yield from self._without_effect(_IAM, "only AWS_MSK_IAM uses it")
            yield from self._without_effect(_LOGIN, "OAUTHBEARER has no user name and password")
            yield from self._required("client_id", "token_endpoint")
            yield from self._one_of("client_secret", "client_secret_file")
        else:
            yield from self._without_effect(_OAUTH, "only OAUTHBEARER uses it")
            yield from self._without_effect(_IAM, "only AWS_MSK_IAM uses it")
            yield from self._required("username")
            yield from self._one_of("password", "password_file")

    def _has(self, field: str) -> bool:
        return getattr(self, field) is not None

    def _without_effect(self, fields: tuple[str, ...], reason: str) -> Iterator[str]:
        yield from (f"{field} has no effect: {reason}" for field in fields if self._has(field))

    def _required(self, *fields: str) -> Iterator[str]:
        yield from (f"{self.mechanism} needs {field}" for field in fields if not self._has(field))

    def _one_of(self, value: str, file: str) -> Iterator[str]:
        if self._has(value) and self._has(file):
            yield f"has {value} and {file}: remove one of them"
        elif not (self._has(value) or self._has(file)):
            yield f"{self.mechanism} needs {file} (or {value}: ${{VARIABLE}})"

    def __str__(self) -> str:
        """Short text without secrets."""
        if self.region:
            role = f" as {self.role_arn}" if self.role_arn else ""
            login = f", {self.mechanism} in {self.region}{role}"
        elif self.username or self.client_id:
            login = f", {self.mechanism} as {self.username or self.client_id}"
        else:
            login = f", with the certificate {self.certificate_file}" if self.key_file else ""
        return f"{self.protocol}{login}"
