"""Checks before the query starts that the topics exist and that the job may use them."""

from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

from confluent_kafka import KafkaError, KafkaException, TopicCollection

from job.errors import BrokerError, SecurityError, StreamjoinError, TopicError
from job.join_spec.output import Delivery
from job.join_spec.security import Mechanism, Protocol
from job.join_spec.sides import SIDES, Side
from job.join_spec.source_topics import PARTITIONS_MAX
from job.kafka.clients import AclOperation, AdminClient, admin, answer, describe_error, no_broker
from job.kafka.security import KafkaAccess, librdkafka_settings
from job.kafka.topic_settings import check_settings
from job.plan.plan import JoinPlan, SidePlan
from job.waiting import wait_until

# Enough for the first response of a loaded broker on a small machine.
ANSWER_SECONDS = 10.0
_POLL_SECONDS = 0.05

_OPERATIONS = {"Read": AclOperation.READ, "Write": AclOperation.WRITE}


@dataclass(frozen=True)
class TopicUse:
    """A topic, and the operations of the join on it."""

    field: str
    """Field of the spec."""
    topic: str
    operations: tuple[Literal["Read", "Write"], ...]
    is_created: bool = False
    """Whether the job creates the topic if it does not exist."""


class _Findings(NamedTuple):
    missing: list[TopicUse]
    denied: list[TopicUse]
    partitions: dict[str, int]
    """Number of partitions of the topics that exist."""


def check_topics(plan: JoinPlan, access: KafkaAccess) -> dict[Side, tuple[int, ...]]:
    """Check all topics of the plan. Returns the number of partitions of each input topic.

    Raises BrokerError if no broker answers, SecurityError if the broker refuses the login or denies
    access to a topic, TopicError if a topic does not exist, has too many partitions, or has
    settings with which the broker would refuse records.
    """
    findings = _findings(_topic_uses(plan), access)
    if findings.denied:
        raise SecurityError(
            f"Kafka at {access.bootstrap_servers} denies access to topics; grant it with\n"
            + "\n".join(_grants(findings.denied, access))
        )
    if findings.missing:
        raise TopicError(
            f"topics do not exist on {access.bootstrap_servers}; create them with\n"
            + "\n".join(_creations(findings.missing, access))
        )
    _check_partition_counts(plan, findings.partitions)
    check_settings(plan, access)
    return {
        side: tuple(findings.partitions[name] for name in plan.side(side).topics.names)
        for side in SIDES
    }


def with_output_partitions(plan: JoinPlan, access: KafkaAccess) -> JoinPlan:
    """The plan with the number of partitions of its output topic, if its results need it.

    `check_topics` has checked the topic. Raises BrokerError.
    """
    output = plan.output
    if output.partition_by is None:
        return plan
    try:
        count = len(answer(_answers({output.topic}, access)[output.topic]).partitions)
    except KafkaException as error:
        raise no_broker(access, error) from error
    return replace(plan, output=replace(output, partitions=count))


def _check_partition_counts(plan: JoinPlan, partitions: Mapping[str, int]) -> None:
    """With several topics on a side, the number of a partition has 10 bits."""
    for side in SIDES:
        topics = plan.side(side).topics
        for name in topics.names if topics.are_several else ():
            if partitions[name] > PARTITIONS_MAX:
                raise TopicError(
                    f"{side}.topics: topic {name} has {partitions[name]} partitions, and a side "
                    f"with several topics reads at most {PARTITIONS_MAX} of each: use a topic "
                    "with fewer partitions, or one topic on the side"
                )


def _topic_uses(plan: JoinPlan) -> list[TopicUse]:
    uses = [
        *_sources(plan.left),
        *_sources(plan.right),
        TopicUse("output.topic", plan.output.topic, ("Write",)),
    ]
    if plan.dead_letter is not None:
        uses.append(TopicUse("dead_letter.topic", plan.dead_letter.topic, ("Write",)))
    if plan.output.delivery is Delivery.EXACTLY_ONCE:
        commits = plan.output.commit_topic
        uses.append(TopicUse("output.commit_topic", commits, ("Read", "Write"), is_created=True))
    return uses


def _sources(side: SidePlan) -> Iterator[TopicUse]:
    for index, name in enumerate(side.topics.names):
        field = f"topics[{index}]" if side.topics.are_several else "topic"
        if side.topics.pattern is not None:
            field = "topic_pattern"
        yield TopicUse(f"{side.side}.{field}", name, ("Read",))


def _findings(uses: list[TopicUse], access: KafkaAccess) -> _Findings:
    answers = _answers({use.topic for use in uses}, access)
    missing, denied, partitions = [], [], {}
    for use in uses:
        try:
            description = answer(answers[use.topic])
        except KafkaException as error:
            code = error.args[0].code()
            if code == KafkaError.UNKNOWN_TOPIC_OR_PART:
                missing += [] if use.is_created else [use]
            elif code == KafkaError.TOPIC_AUTHORIZATION_FAILED:
                denied.append(use)
            else:
                raise no_broker(access, error) from error
        else:
            partitions[use.topic] = len(description.partitions)
            allowed = description.authorized_operations
            # Brokers before 2.3 do not return operations.
            if allowed and not {_OPERATIONS[name] for name in use.operations} <= set(allowed):
                denied.append(use)
    return _Findings(missing, denied, partitions)


def _answers(topics: set[str], access: KafkaAccess) -> "dict[str, Future[Any]]":
    """Description of each topic. A refused login ends the wait: it is not retried."""
    errors: list[KafkaError] = []
    client = _client(access, errors)
    answers: dict[str, Future[Any]] = client.describe_topics(
        TopicCollection(sorted(topics)),
        include_authorized_operations=True,
        request_timeout=ANSWER_SECONDS,
    )

    def have_arrived() -> bool:
        client.poll(0)
        for error in errors:
            if (refusal := _refusal(error, access)) is not None:
                raise refusal
        return all(answer.done() for answer in answers.values())

    if not wait_until(have_arrived, ANSWER_SECONDS, _POLL_SECONDS):
        raise no_broker(access, "; ".join(_messages(errors)) or "no answer")
    return answers


def _client(access: KafkaAccess, errors: list[KafkaError]) -> AdminClient:
    """A client that appends its errors to `errors` when it is polled."""
    settings: dict[str, Any] = {**librdkafka_settings(access), "error_cb": errors.append}
    try:
        return admin(settings)
    except KafkaException as error:  # e.g. a password that does not decrypt the key
        raise SecurityError(
            f"kafka.security cannot be used: {describe_error(error)}: check its files"
        ) from error


def _refusal(error: KafkaError, access: KafkaAccess) -> StreamjoinError | None:
    """The permanent failure that an error of the client means. None: it may be transient."""
    message, servers, security = error.str(), access.bootstrap_servers, access.security
    if security is None:
        return None
    if "OAUTHBEARER token" in message:
        where = f"{security.token_endpoint} returns no token: {message}"
        if "error" in message:  # the endpoint's own response, by RFC 6749
            return SecurityError(f"{where}; check client_id, client_secret_file and scope")
        return BrokerError(
            f"{where}; check kafka.security.token_endpoint, as seen from this machine"
        )
    if error.code() == KafkaError._AUTHENTICATION:
        what = "the token" if security.mechanism is Mechanism.OAUTHBEARER else "user and password"
        return SecurityError(
            f"Kafka at {servers} refuses the login ({security}): {message}. Correct {what} in "
            "kafka.security, or contact the administrator of the broker, then `restart`"
        )
    if error.code() == KafkaError._SSL or "SSL alert" in message:
        return SecurityError(
            f"no TLS with Kafka at {servers}: {message}. Check kafka.security: ca_file must "
            "contain the CA that signed the broker's certificate, the certificate must "
            "contain the host of bootstrap_servers, and certificate_file and key_file are "
            "required if the broker requests a client certificate"
        )
    return None


def _messages(errors: list[KafkaError]) -> list[str]:
    return list(dict.fromkeys(error.str() for error in errors))[:3]


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
    """The principal of the job, as far as it is known without the broker."""
    security = access.security
    if security is None or security.protocol is Protocol.PLAINTEXT:
        return "User:ANONYMOUS"
    if security.mechanism is Mechanism.OAUTHBEARER:
        return "User:<the token's subject>"
    if security.mechanism is None:
        return "User:<the subject of certificate_file>" if security.key_file else "User:ANONYMOUS"
    return f"User:{security.username}"
