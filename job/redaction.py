"""Takes known secrets out of texts. Pure.

Secrets are known by their values: whoever reads one tells it to the Redaction of the process, and
what leaves the process (logs, failures, answers) goes through it.
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

    def learn(self, secrets: Iterable[str]) -> None:
        """From now on none of `secrets` is in a scrubbed text; those learnt before are neither."""
        forms = self._forms | {form for secret in secrets if secret for form in _forms(secret)}
        # Longest first: one secret may be the beginning of another.
        ordered = sorted(forms, key=len, reverse=True)
        pattern = re.compile("|".join(map(re.escape, ordered))) if ordered else None
        self._forms, self._pattern = forms, pattern

    def scrubbed(self, text: str) -> str:
        return text if self._pattern is None else self._pattern.sub(MARK, text)

    def scrub_error(self, error: Exception) -> None:
        """Take the secrets out of what `error` says."""
        error.args = tuple(self._value(part) for part in error.args)

    def scrub_event(
        self, logger: Any, method: str, event: MutableMapping[str, Any]
    ) -> dict[str, Any]:
        """A processor of structlog; it stands after those that make text of an exception."""
        del logger, method
        return {name: self._value(value) for name, value in event.items()}

    def _value(self, value: Any) -> Any:
        return self.scrubbed(value) if isinstance(value, str) else value


def _forms(secret: str) -> Iterator[str]:
    """How a secret is written: as it is, in a JAAS line, as JSON or repr, in a URL."""
    yield secret
    yield secret.replace("\\", "\\\\").replace('"', '\\"')
    yield repr(secret)[1:-1]
    yield json.dumps(secret)[1:-1]
    yield json.dumps(json.dumps(secret)[1:-1])[1:-1]
    yield quote(secret, safe="")
    yield quote_plus(secret)
