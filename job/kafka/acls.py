"""The rights of the job besides those on topics, and the commands that grant rights.

Only calls that change nothing for a running job: no transactional id that it uses is initialized.
"""

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Producer

from job.kafka.clients import ANSWER_SECONDS
from job.kafka.security import KafkaAccess, librdkafka_settings
from job.plan.plan import JoinPlan
from job.spec.output import Delivery
from job.spec.security import Mechanism, Protocol

_REFUSED = frozenset(
    {
        KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    }
)


# librdkafka logs a refused id as fatal.
_SILENT = logging.Logger("refused ids", logging.CRITICAL + 1)


_ACTIONS = {
    ("--topic", "Read"): ("DescribeTopic", "ReadData"),
    ("--topic", "Write"): ("DescribeTopic", "WriteData"),
    ("--transactional-id", "Write"): ("DescribeTransactionalId", "AlterTransactionalId"),
}
"""With AWS_MSK_IAM, policies of IAM replace Kafka's ACLs."""


@dataclass(frozen=True)
class Grant:
    operations: Sequence[str]
    resource: str
    """Options of kafka-acls.sh."""

    def command(self, access: KafkaAccess) -> str:
        if access.security is not None and access.security.mechanism is Mechanism.AWS_MSK_IAM:
            kind, name, *pattern = self.resource.split()
            actions = dict.fromkeys(it for each in self.operations for it in _ACTIONS[kind, each])
            listed = ", ".join(f"kafka-cluster:{action}" for action in actions)
            resource = kind.removeprefix("--").replace("-", " ")
            return f"IAM actions {listed} on {resource} {name}{'*' if pattern else ''}"
        return (
            f"kafka-acls.sh --bootstrap-server {access.bootstrap_servers} --add "
            f"--allow-principal '{_principal(access)}' "
            f"{' '.join(f'--operation {name}' for name in self.operations)} {self.resource}"
        )


def denied(topics: Sequence[tuple[str, Grant]], plan: JoinPlan, access: KafkaAccess) -> str:
    """The message with the commands for `topics` (field and topic, grant), and for the other rights
    that are missing."""
    rights = [*topics, *missing_rights(plan, access)]
    lines = [f"  {what}: {grant.command(access)}" for what, grant in rights]
    return f"Kafka at {access.bootstrap_servers} denies access; grant it with\n" + "\n".join(lines)


def missing_rights(plan: JoinPlan, access: KafkaAccess) -> Iterator[tuple[str, Grant]]:
    """What the transactional ids of the job lack. The right on the consumer group is not checked:
    Kafka's client has no call for it that is safe in the process of the job, and without the right
    the job runs, and commits no offsets for lag tools."""
    prefix = f"streamjoin-{plan.name}-"
    if plan.output.delivery is Delivery.EXACTLY_ONCE and _are_ids_refused(access, prefix):
        resource = f"--transactional-id {prefix} --resource-pattern-type prefixed"
        yield "transactional ids", Grant(["Write"], resource)


def _are_ids_refused(access: KafkaAccess, prefix: str) -> bool:
    """Initializes an id that no job uses: slots of a job end with a number or `dead-letters`."""
    settings: dict[str, Any] = {
        **librdkafka_settings(access),
        "log_level": 0,
        "transactional.id": f"{prefix}check",
    }
    try:
        Producer(settings, logger=_SILENT).init_transactions(ANSWER_SECONDS)
    except KafkaException as error:
        return error.args[0].code() in _REFUSED
    return False


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
