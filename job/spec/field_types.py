"""Types of the spec's fields that need their own rule: names, topics, expressions, rates."""

import re
import unicodedata
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field, TypeAdapter, ValidationError

# Part of topic names, transactional ids and metric labels.
Name = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*$", max_length=100)]
Expression = Annotated[str, Field(min_length=1, max_length=10_000)]


# Topics of the brokers themselves (org.apache.kafka.common.internals.Topic).
_INTERNAL_TOPICS = {
    "__consumer_offsets", "__transaction_state", "__share_group_state", "__cluster_metadata",
    "__remote_log_metadata",
}  # fmt: skip


def _legal_topic(topic: str) -> str:
    """Kafka's own rule (org.apache.kafka.common.internals.Topic)."""
    if not re.fullmatch(r"[a-zA-Z0-9._-]{1,249}", topic) or topic in {".", ".."}:
        raise ValueError(
            "is not a Kafka topic name: use 1 to 249 letters, digits, '.', '_' or '-', "
            "and not '.' or '..'"
        )
    if topic in _INTERNAL_TOPICS:
        raise ValueError("is an internal topic of Kafka: use another topic")
    return topic


Topic = Annotated[str, AfterValidator(_legal_topic)]


def _regular_expression(pattern: str) -> str:
    try:
        re.compile(pattern)
    except (re.error, OverflowError, RecursionError) as error:
        raise ValueError(
            f"is not a regular expression ({error}): use Python's syntax, e.g. orders_.*"
        ) from error
    return pattern


TopicPattern = Annotated[
    str, Field(min_length=1, max_length=1_000), AfterValidator(_regular_expression)
]


# Beyond any Kafka cluster; larger rates would overflow the estimates.
_RATE_MAX = 1_000_000_000


def _not_boolean(value: Any) -> Any:
    """Python treats True as 1."""
    if isinstance(value, bool):
        raise ValueError("must be a number")
    return value


def _possible_rate(rate: float) -> float:
    if rate > _RATE_MAX:
        raise ValueError(f"must be at most {_RATE_MAX:,} records per second")
    return rate


Rate = Annotated[
    float,
    Field(gt=0, allow_inf_nan=False),
    BeforeValidator(_not_boolean),
    AfterValidator(_possible_rate),
]


def _legible_name(name: str) -> str:
    """Refuses control characters, line breaks and marks that reorder text: nobody can type them."""
    legible = name.replace(" ", "")
    if not legible or any(unicodedata.category(character)[0] in "CZ" for character in legible):
        raise ValueError("must not be empty or contain control characters or line breaks")
    return name


def _free_header(name: str) -> str:
    if name.casefold().startswith(("streamjoin-", "__streamjoin.")):
        raise ValueError("is reserved for headers of Streamjoin: use another name")
    return name


ColumnName = Annotated[str, Field(max_length=255), AfterValidator(_legible_name)]
HeaderName = Annotated[ColumnName, AfterValidator(_free_header)]


_BOOLEAN = TypeAdapter(bool)


def _booleans(value: Any) -> Any:
    try:
        if isinstance(value, list):
            return tuple(_BOOLEAN.validate_python(each) for each in value)
        return _BOOLEAN.validate_python(value)
    except ValidationError:
        raise ValueError(
            "must be true, false, or a list with one of them for each pair of keys, e.g. "
            "[true, false]"
        ) from None


NullSafety = Annotated[bool | tuple[bool, ...], BeforeValidator(_booleans)]
