"""What must be true of Kafka before the query starts, asked of the broker itself."""

import time
from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # its own re-exports
    AclOperation,
    AdminClient,
)

from job.errors import BrokerError, SecurityError, StreamjoinError, TopicError
from job.join_spec.expressions import SIDES, Side
from job.join_spec.security import Mechanism, Protocol
from job.join_spec.spec import Delivery
from job.kafka.security import KafkaAccess, librdkafka_settings
from job.plan.plan import JoinPlan

# The first answer of a broker under load on a small machine; long enough not to cry wolf.
ANSWER_SECONDS = 10.0
_LOOK_SECONDS = 0.05

_OPERATIONS = {"Read": AclOperation.READ, "Write": AclOperation.WRITE}


@dataclass(frozen=True)
class TopicUse:
    """What the join does with a topic."""

    field: str
    """Where the spec names it."""
    topic: str
    operations: tuple[Literal["Read", "Write"], ...]
    is_made: bool = False
    """Whether the job makes it where it is missing."""


class _Findings(NamedTuple):
    missing: list[TopicUse]
    denied: list[TopicUse]
    partitions: dict[str, int]
    """Of the topics that are there."""


def check_topics(plan: JoinPlan, access: KafkaAccess) -> dict[Side, int]:
    """All topics are there and may be used; the number of partitions of each side's topic.

    BrokerError where no broker answers, SecurityError where it does not let us in or near a topic,
    TopicError naming what is missing.
    """
    found = _findings(_topic_uses(plan), access)
    if found.denied:
        raise SecurityError(
            f"Kafka at {access.bootstrap_servers} does not allow it; whoever may, can say\n"
            + "\n".join(_grants(found.denied, access))
        )
    if found.missing:
        raise TopicError(
            f"no such topic on {access.bootstrap_servers}; make it with\n"
            + "\n".join(_creations(found.missing, access))
        )
    return {side: found.partitions[plan.side(side).topic] for side in SIDES}


def _topic_uses(plan: JoinPlan) -> list[TopicUse]:
    uses = [
        TopicUse("left.topic", plan.left.topic, ("Read",)),
        TopicUse("right.topic", plan.right.topic, ("Read",)),
        TopicUse("output.topic", plan.output.topic, ("Write",)),
    ]
    if plan.dead_letter is not None:
        uses.append(TopicUse("dead_letter.topic", plan.dead_letter.topic, ("Write",)))
    if plan.output.delivery is Delivery.EXACTLY_ONCE:
        commits = plan.output.commit_topic
        uses.append(TopicUse("output.commit_topic", commits, ("Read", "Write"), is_made=True))
    return uses


def _findings(uses: list[TopicUse], access: KafkaAccess) -> _Findings:
    answers = _answers({use.topic for use in uses}, access)
    missing, denied, partitions = [], [], {}
    for use in uses:
        try:
            found = answers[use.topic].result()
        except KafkaException as error:
            code = error.args[0].code()
            if code == KafkaError.UNKNOWN_TOPIC_OR_PART:
                missing += [] if use.is_made else [use]
            elif code == KafkaError.TOPIC_AUTHORIZATION_FAILED:
                denied.append(use)
            else:
                raise _no_broker(access, error.args[0].str()) from error
        else:
            partitions[use.topic] = len(found.partitions)
            allowed = found.authorized_operations
            # Brokers before 2.3 do not tell.
            if allowed and not {_OPERATIONS[name] for name in use.operations} <= set(allowed):
                denied.append(use)
    return _Findings(missing, denied, partitions)


def _answers(topics: set[str], access: KafkaAccess) -> "dict[str, Future[Any]]":
    """What the broker says of each topic. A refused login ends the wait: it is not tried again."""
    troubles: list[KafkaError] = []
    settings: dict[str, Any] = {
        **librdkafka_settings(access),
        "log_level": 0,
        "error_cb": troubles.append,
    }
    try:
        client = AdminClient(settings)
    except KafkaException as error:  # e.g. a key that its password does not open
        raise SecurityError(
            f"kafka.security cannot be used: {error.args[0].str()}: check its files"
        ) from error
    answers: dict[str, Future[Any]] = client.describe_topics(
        TopicCollection(sorted(topics)),
        include_authorized_operations=True,
        request_timeout=ANSWER_SECONDS,
    )
    deadline = time.monotonic() + ANSWER_SECONDS
    while not all(answer.done() for answer in answers.values()):
        client.poll(_LOOK_SECONDS)
        for trouble in troubles:
            if (refusal := _refusal(trouble, access)) is not None:
                raise refusal
        if time.monotonic() > deadline:
            raise _no_broker(access, "; ".join(_said(troubles)) or "no answer")
    return answers


def _refusal(trouble: KafkaError, access: KafkaAccess) -> StreamjoinError | None:
    """The error that waiting does not cure; None where it may."""
    said, servers, security = trouble.str(), access.bootstrap_servers, access.security
    if security is None:
        return None
    if "OAUTHBEARER token" in said:
        where = f"{security.token_endpoint} gives no token: {said}"
        if "error" in said:  # the endpoint's own answer, by RFC 6749
            return SecurityError(f"{where}; check client_id, client_secret_file and scope")
        return BrokerError(f"{where}; is kafka.security.token_endpoint right as seen from here?")
    if trouble.code() == KafkaError._AUTHENTICATION:
        who = "token" if security.mechanism is Mechanism.OAUTHBEARER else "user and password"
        return SecurityError(
            f"Kafka at {servers} refuses the login ({security}): {said}. Put {who} "
            "in order in kafka.security, or ask whoever runs the broker, then `restart`"
        )
    if trouble.code() == KafkaError._SSL or "SSL alert" in said:
        return SecurityError(
            f"no TLS with Kafka at {servers}: {said}. Check kafka.security: ca_file must hold the "
            "CA that signed the broker's certificate, the broker be called by a name in that, "
            "and certificate_file and key_file be given where the broker asks for them"
        )
    return None


def _no_broker(access: KafkaAccess, reason: str) -> BrokerError:
    wants = "" if access.security else ", and does it want TLS or a login (kafka.security)"
    return BrokerError(
        f"no broker answers at {access.bootstrap_servers} ({reason}): is it up, is "
        f"kafka.bootstrap_servers right as seen from here{wants}?"
    )


def _said(troubles: list[KafkaError]) -> list[str]:
    return list(dict.fromkeys(trouble.str() for trouble in troubles))[:3]


def _grants(denied: list[TopicUse], access: KafkaAccess) -> Iterator[str]:
    for use in denied:
        yield (
            f"  {use.field} {use.topic}: kafka-acls.sh --bootstrap-server "
            f"{access.bootstrap_servers} --add --allow-principal '{_principal(access)}' "
            f"{' '.join(f'--operation {name}' for name in use.operations)} --topic {use.topic}"
        )


def _creations(missing: list[TopicUse], access: KafkaAccess) -> Iterator[str]:
    for use in missing:
        yield (
            f"  {use.field} {use.topic}: kafka-topics.sh --bootstrap-server "
            f"{access.bootstrap_servers} --create --topic {use.topic} --partitions 4"
        )


def _principal(access: KafkaAccess) -> str:
    """As whom the broker knows us, as far as can be told from here."""
    security = access.security
    if security is None or security.protocol is Protocol.PLAINTEXT:
        return "User:ANONYMOUS"
    if security.mechanism is Mechanism.OAUTHBEARER:
        return "User:<the token's subject>"
    if security.mechanism is None:
        return "User:<the subject of certificate_file>" if security.key_file else "User:ANONYMOUS"
    return f"User:{security.username}"
