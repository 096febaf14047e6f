"""Fields of the spec for the schema registry. Secrets never appear in printed text.

Pure: this module only names files; formats/registry.py reads them and calls the registry.
"""

from collections.abc import Iterator
from urllib.parse import urlsplit

from pydantic import ConfigDict, field_validator

from job.spec.frozen import Frozen
from job.spec.security import File, Secret, Text


def default_subject(topic: str) -> str:
    """The subject of Confluent's TopicNameStrategy for the values of a topic."""
    return f"{topic}-value"


def key_subject(topic: str) -> str:
    """The subject of Confluent's TopicNameStrategy for the keys of a topic."""
    return f"{topic}-key"


class SchemaRegistrySpec(Frozen):
    """A schema registry with Confluent's API."""

    # As for KafkaSecurity: a password may begin with a blank.
    model_config = ConfigDict(str_strip_whitespace=False)

    url: Text
    """URL of the registry, e.g. `https://registry.example.org:8081`."""
    username: Text | None = None
    """User name for HTTP basic authentication. Omitted: no login."""
    password: Secret | None = None
    """Password from the environment, as `${REGISTRY_PASSWORD}`. `password_file` is safer."""
    password_file: File | None = None
    """File with the password, read at each start of the query without a final line break."""
    ca_file: File | None = None
    """PEM file with the CAs of the registry's certificate. Omitted: the CAs of this machine."""

    @field_validator("url")
    @classmethod
    def _address(cls, url: str) -> str:
        try:
            parts = urlsplit(url)
            host = parts.hostname
            _ = parts.port
            url.encode("ascii")
            (host or "").encode("idna")  # e.g. an empty part
        except ValueError as error:
            raise ValueError("is not a URL such as https://registry.example.org") from error
        if parts.username or parts.password:
            raise ValueError("contains a user name or password: use username and password_file")
        if not host or parts.scheme not in {"http", "https"} or parts.query or parts.fragment:
            raise ValueError("is not a URL such as https://registry.example.org")
        return url.rstrip("/")

    def contradictions(self) -> Iterator[str]:
        if self.password is not None and self.password_file is not None:
            yield "has password and password_file: remove one of them"
        has_password = self.password is not None or self.password_file is not None
        if has_password != (self.username is not None):
            yield "needs both or neither of username and password_file (or password)"
        if not self.url.startswith("https://"):
            if self.ca_file is not None:
                yield "ca_file has no effect: the url does not begin with https://"
            if has_password and urlsplit(self.url).hostname not in {
                "localhost",
                "127.0.0.1",
                "::1",
            }:
                yield "the url must begin with https://: the password is sent to it"
