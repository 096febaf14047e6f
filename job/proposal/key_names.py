"""What the names of two fields say about whether they are the same key."""

from collections.abc import Sequence

from job.proposal.fields import UNNAMED, words
from job.proposal.times import WORDS_OF_KEYS

ARE_NO_KEYS = frozenset(
    {
        *("seq", "sequence", "offset", "index", "idx", "count", "counter", "position", "pos"),
        *("version", "revision", "lsn", "attempt", "retry", "partition", "page"),
        *("amount", "price", "total", "cent", "sum", "quantity", "qty", "value", "status"),
        *("temperature", "score", "size", "age", "rate", "op", "type", "kind", "state", "level"),
    }
)
"""Last words of the names of counters, measures and kinds, which two topics share by chance."""


def likeness(left: tuple[str, Sequence[str]], right: tuple[str, Sequence[str]]) -> float:
    """From -1 to 1. Each side: its topic, and the names from the column to the field."""
    (topic, parts), (other_topic, other_parts) = left, right
    if not parts or not other_parts:  # a record key has no name
        return 0.6 if not parts and not other_parts else 0.4 * is_key(parts or other_parts)
    if any(UNNAMED.fullmatch(each[-1]) for each in (parts, other_parts)):
        return 0.0
    name, other = _words(parts), _words(other_parts)
    if ARE_NO_KEYS & {name[-1], other[-1]}:
        return -1.0
    if name == other:
        return 0.4 if set(name) <= WORDS_OF_KEYS else 1.0
    if _refers(other, name, topic) or _refers(name, other, other_topic):
        return 1.0
    same = set(name) & set(other)
    return 0.7 if same - WORDS_OF_KEYS else 0.2 * bool(same)


def is_key(parts: Sequence[str]) -> bool:
    """Whether the last name ends as names of keys do."""
    return bool(set(_words(parts)[-1:]) & WORDS_OF_KEYS)


def _words(parts: Sequence[str]) -> list[str]:
    """The words of all names, without those of an envelope and without repetitions: `user.userId`
    is `user id`."""
    found = [word for part in parts if part not in {"payload", "after"} for word in words(part)]
    return list(dict.fromkeys(found)) or ["value"]


def _refers(name: Sequence[str], other: Sequence[str], topic: str) -> bool:
    """Whether `name`, e.g. `order id`, is `other`, e.g. `id`, of the topic `orders`."""
    of_topic = set(words(topic))
    is_plain = set(other) <= WORDS_OF_KEYS
    return is_plain and name[-1] == other[-1] and bool(set(name[:-1]) & of_topic)
