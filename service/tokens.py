"""Bearer tokens from a file, each with its scope.

    # name  scope    token
    grafana read     0QXcFq6cXXuE4kqLq7bW
    ada     control  Yk3iq0Yl8B2w1c5v0m9K

One token per line; the scope `control` includes `read`. The file is read again when it changes.
Several tokens of one name are valid at the same time, so a token is rotated without a restart.
"""

import hashlib
import hmac
import re
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import structlog

from job.errors import SetupError

# 16 random characters cannot be guessed over a network.
TOKEN_CHARS_MIN = 16
# Characters that RFC 6750 allows in a token.
_TOKEN = re.compile(r"[A-Za-z0-9._~+/-]+=*")
_NAME = re.compile(r"[A-Za-z0-9._-]{1,64}")

_log = structlog.get_logger()


class Scope(StrEnum):
    READ = "read"
    CONTROL = "control"

    def includes(self, other: "Scope") -> bool:
        return self is Scope.CONTROL or other is Scope.READ


@dataclass(frozen=True)
class Token:
    name: str
    """Name of the client, for the log."""
    scope: Scope
    digest: bytes
    """SHA-256; the token itself is not kept."""


class TokenFile:
    """The current tokens of a file."""

    def __init__(self, path: Path) -> None:
        """Raises SetupError if the file cannot be used."""
        self._path = path
        self._signature = _signature(path)
        self._tokens = _read(path)

    def find(self, presented: str) -> Token | None:
        """The entry of a token, in a time that does not depend on the token. None: unknown."""
        self._reload()
        digest = _digest(presented)
        match = None
        for token in self._tokens:
            if hmac.compare_digest(token.digest, digest):
                match = token
        return match

    def _reload(self) -> None:
        """Read a changed file. A file that is invalid, perhaps half written, changes nothing."""
        signature = _signature(self._path)
        if signature == self._signature:
            return
        self._signature = signature
        try:
            self._tokens = _read(self._path)
        except SetupError as error:
            _log.error("tokens_invalid", reason=str(error), still_valid=len(self._tokens))
        else:
            _log.info("tokens_reloaded", names=sorted({token.name for token in self._tokens}))


def _read(path: Path) -> tuple[Token, ...]:
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise SetupError(
            f"STREAMJOIN_TOKENS_FILE {path} cannot be read: {error.strerror}"
        ) from error
    except UnicodeDecodeError:
        raise SetupError(f"STREAMJOIN_TOKENS_FILE {path} is not UTF-8 text") from None
    tokens = []
    for number, line in enumerate(lines, start=1):
        words = line.split()
        if words and not words[0].startswith("#"):
            try:
                tokens.append(_token(words))
            except ValueError as error:  # without the line, which may contain a token
                raise SetupError(f"STREAMJOIN_TOKENS_FILE {path}, line {number}: {error}") from None
    if not tokens:
        raise SetupError(
            f"STREAMJOIN_TOKENS_FILE {path} contains no token: write lines of `name scope token`"
        )
    if len({token.digest for token in tokens}) < len(tokens):
        raise SetupError(
            f"STREAMJOIN_TOKENS_FILE {path} contains a token twice: use different tokens"
        )
    return tuple(tokens)


def _token(words: list[str]) -> Token:
    if len(words) != 3:
        raise ValueError("must be `name scope token`, separated by spaces")
    name, scope, token = words
    if not _NAME.fullmatch(name):
        raise ValueError("the name must have at most 64 letters, digits, '.', '_' and '-'")
    if scope not in list(Scope):
        raise ValueError(f"the scope must be one of {', '.join(Scope)}")
    if len(token) < TOKEN_CHARS_MIN or not _TOKEN.fullmatch(token):
        raise ValueError(
            f"the token must have at least {TOKEN_CHARS_MIN} letters, digits or -._~+/ "
            "(openssl rand -hex 16)"
        )
    return Token(name, Scope(scope), _digest(token))


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()


def _signature(path: Path) -> tuple[int, int, int] | None:
    """Differs after a change of the file; None if there is no file."""
    try:
        stat = path.stat()
    except OSError:
        return None
    return stat.st_mtime_ns, stat.st_size, stat.st_ino
