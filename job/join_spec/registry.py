"""How the spec says where the schema registry is and how to log in. What is secret never prints.

Pure: files are only named here; formats/registry.py reads them and asks.
"""

from typing import Self
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, field_validator, model_validator

from job.join_spec.security import File, Secret, Text


class SchemaRegistrySpec(BaseModel):
    # As in security_spec.py: a password may begin with a blank, and errors quote nothing.
    model_config = ConfigDict(
        frozen=True, extra="forbid", str_strip_whitespace=False, hide_input_in_errors=True
    )

    url: Text
    """Of a registry with Confluent's API, e.g. `https://registry.example.org:8081`."""
    username: Text | None = None
    password: Secret | None = None
    """From the environment, as `${REGISTRY_PASSWORD}`; a file is safer."""
    password_file: File | None = None
    """Read at each start of the query; a line break at its end does not count."""
    ca_file: File | None = None
    """PEM: who may sign the registry's certificate; left out, whom this machine trusts."""

    @field_validator("url")
    @classmethod
    def _address(cls, url: str) -> str:
        try:
            parts = urlsplit(url)
            host = parts.hostname
            _ = parts.port
        except ValueError as error:
            raise ValueError("is not a URL such as https://registry.example.org") from error
        if parts.username or parts.password:
            raise ValueError("holds a name or password: say username and password_file")
        if not host or parts.scheme not in {"http", "https"} or parts.query or parts.fragment:
            raise ValueError("is not a URL such as https://registry.example.org")
        return url.rstrip("/")

    @model_validator(mode="after")
    def _makes_sense(self) -> Self:
        if self.password is not None and self.password_file is not None:
            raise ValueError("has password and password_file: keep one of them")
        has_password = self.password is not None or self.password_file is not None
        if has_password != (self.username is not None):
            raise ValueError("username and password_file (or password) need each other")
        if not self.url.startswith("https://"):
            if self.ca_file is not None:
                raise ValueError("ca_file has no effect: the url does not begin with https://")
            if has_password and urlsplit(self.url).hostname not in {
                "localhost",
                "127.0.0.1",
                "::1",
            }:
                raise ValueError("the url must begin with https://, as a password is sent there")
        return self
