"""LIKE: _ matches one character, % any number of characters, \\ escapes both."""

import re
from functools import lru_cache

from job.evaluation.sql_types import SqlRuntimeError

_ESCAPE = "\\"


def like(text: str, pattern: str) -> bool:
    return _regex(pattern).fullmatch(text) is not None


@lru_cache(maxsize=1024)
def _regex(pattern: str) -> re.Pattern[str]:
    parts: list[str] = []
    characters = iter(pattern)
    for character in characters:
        if character == _ESCAPE:
            escaped = next(characters, None)
            if escaped not in {"_", "%", _ESCAPE}:
                raise SqlRuntimeError("INVALID_FORMAT.ESC_IN_THE_MIDDLE", pattern)
            parts.append(re.escape(escaped))
        else:
            parts.append({"_": ".", "%": ".*"}.get(character, re.escape(character)))
    return re.compile("".join(parts), re.DOTALL)
