"""Bearer tokens from a file: who may look, and who may command.

    # name  scope    token
    grafana read     0QXcFq6cXXuE4kqLq7bW
    ada     control  Yk3iq0Yl8B2w1c5v0m9K

One a line; `control` may look, too. Several tokens are valid at once, also of one name: a new one
is added, given out, and the old one taken away, without a restart.
"""

import hashlib
import hmac
import re
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import structlog

from job.errors import SetupError

# 16 characters at random are beyond guessing over a network.
TOKEN_CHARS_MIN = 16
# The characters RFC 6750 allows in a token.
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
    """Of its holder, for the log."""
    scope: Scope
    digest: bytes
    """SHA-256: the token itself is not kept."""


class TokenFile:
    """The tokens of a file as it is now."""

    def __init__(self, path: Path) -> None:
        """SetupError where the file cannot be used."""
        self._path = path
        self._seen = _signature(path)
        self._tokens = _read(path)

    def holder(self, presented: str) -> Token | None:
        """Whose token this is. Takes the same time whichever it is, and whether it is one."""
        self._look_again()
        digest = _digest(presented)
        found = None
        for token in self._tokens:
            if hmac.compare_digest(token.digest, digest):
                found = token
        return found

    def _look_again(self) -> None:
        """A file that cannot be used leaves the tokens as they were: it may be half written."""
        seen = _signature(self._path)
        if seen == self._seen:
            return
        self._seen = seen
        try:
            self._tokens = _read(self._path)
        except SetupError as error:
            _log.error("tokens_not_read", reason=str(error), still_valid=len(self._tokens))
        else:
            _log.info("tokens_read", names=sorted({token.name for token in self._tokens}))


def _read(path: Path) -> tuple[Token, ...]:
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise SetupError(
            f"STREAMJOIN_TOKENS_FILE {path} cannot be read: {error.strerror}"
        ) from error
    except UnicodeDecodeError:
        raise SetupError(f"STREAMJOIN_TOKENS_FILE {path} is not text in UTF-8") from None
    tokens = []
    for number, line in enumerate(lines, start=1):
        words = line.split()
        if words and not words[0].startswith("#"):
            try:
                tokens.append(_token(words))
            except ValueError as error:  # the line itself may hold a token
                raise SetupError(f"STREAMJOIN_TOKENS_FILE {path}, line {number}: {error}") from None
    if not tokens:
        raise SetupError(f"STREAMJOIN_TOKENS_FILE {path} holds no token: write `name scope token`")
    if len({token.digest for token in tokens}) < len(tokens):
        raise SetupError(f"STREAMJOIN_TOKENS_FILE {path} holds a token twice: give each its own")
    return tuple(tokens)


def _token(words: list[str]) -> Token:
    if len(words) != 3:
        raise ValueError("is not `name scope token`, with blanks between them")
    name, scope, token = words
    if not _NAME.fullmatch(name):
        raise ValueError("the name may have up to 64 letters, digits, '.', '_' and '-'")
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
    """Changes when the file does; None while there is none."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
