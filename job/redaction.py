"""Removes known secrets from texts. Pure.

The code that reads a secret adds its value to the Redaction of the process. All output of the
process (logs, failures, responses) passes through the Redaction.
"""

import json
import re
from collections.abc import Iterable, Iterator, MutableMapping
from typing import Any
from urllib.parse import quote, quote_plus

MARK = "[redacted]"


class Redaction:
    def __init__(self) -> None:
        self._forms: frozenset[str] = frozenset()
        self._pattern: re.Pattern[str] | None = None

    def add(self, secrets: Iterable[str]) -> None:
        """Remove `secrets` too from all further texts."""
        forms = self._forms | {form for secret in secrets if secret for form in _forms(secret)}
        # Longest first: a secret may be a prefix of another.
        ordered = sorted(forms, key=len, reverse=True)
        pattern = re.compile("|".join(map(re.escape, ordered))) if ordered else None
        self._forms, self._pattern = forms, pattern

    def scrubbed(self, text: str) -> str:
        return text if self._pattern is None else self._pattern.sub(MARK, text)

    def scrub_error(self, error: Exception) -> None:
        """Remove the secrets from the message of `error`."""
        error.args = tuple(self._value(part) for part in error.args)

    def scrub_event(
        self, logger: Any, method: str, event: MutableMapping[str, Any]
    ) -> dict[str, Any]:
        """Processor of structlog. It must follow those that format exceptions."""
        del logger, method
        return {name: self._value(value) for name, value in event.items()}

    def _value(self, value: Any) -> Any:
        return self.scrubbed(value) if isinstance(value, str) else value


def _forms(secret: str) -> Iterator[str]:
    """Notations of a secret: unchanged, in a JAAS line, as JSON, as repr, in a URL."""
    yield secret
    yield secret.replace("\\", "\\\\").replace('"', '\\"')
    yield repr(secret)[1:-1]
    yield json.dumps(secret)[1:-1]
    yield json.dumps(json.dumps(secret)[1:-1])[1:-1]
    yield quote(secret, safe="")
    yield quote_plus(secret)
