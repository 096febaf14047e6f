"""The admin client of one start or of one change, and its errors as errors for users."""

from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicCollection

from job.errors import BrokerError, SecurityError, StreamjoinError
from job.kafka.clients import (
    ANSWER_SECONDS,
    AdminClient,
    admin,
    describe_error,
    no_broker,
    unresolved_hosts,
)
from job.kafka.security import KafkaAccess, librdkafka_settings
from job.spec.security import Mechanism
from job.waiting import wait_until

_POLL_SECONDS = 0.05


class KafkaAdmin:
    def __init__(self, access: KafkaAccess) -> None:
        """Raises SecurityError if librdkafka does not accept kafka.security."""
        self.access = access
        self._errors: list[KafkaError] = []
        """Errors of the client, added when it is polled."""
        settings: dict[str, Any] = {**librdkafka_settings(access), "error_cb": self._errors.append}
        try:
            self.client: AdminClient = admin(settings)
        except KafkaException as error:  # e.g. a password that does not decrypt the key
            raise SecurityError(
                f"kafka.security cannot be used: {describe_error(error)}: check its files"
            ) from error

    @contextmanager
    def raising_broker_error(self) -> Iterator[AdminClient]:
        """The client. Raises BrokerError for a KafkaException in the block."""
        try:
            yield self.client
        except KafkaException as error:
            raise no_broker(self.access, error) from error

    def raise_refusal(self) -> None:
        """Raise the permanent failure that the client has reported, for example a refused login."""
        self.client.poll(0)
        for error in self._errors:
            if (refusal := _refusal(error, self.access)) is not None:
                raise refusal

    def described(self, topics: set[str]) -> "dict[str, Future[Any]]":
        """Description of each topic. A refused login ends the wait: it is not retried."""
        answers: dict[str, Future[Any]] = self.client.describe_topics(
            TopicCollection(sorted(topics)),
            include_authorized_operations=True,
            request_timeout=ANSWER_SECONDS,
        )

        def have_arrived() -> bool:
            self.raise_refusal()
            if any(error.code() == KafkaError._RESOLVE for error in self._errors) and (
                unresolved_hosts(self.access.bootstrap_servers)
            ):
                raise no_broker(self.access, self._errors[-1].str())
            return all(answer.done() for answer in answers.values())

        if not wait_until(have_arrived, ANSWER_SECONDS, _POLL_SECONDS):
            raise no_broker(self.access, "; ".join(_messages(self._errors)) or "no answer")
        # They do not end the next question. Those of the login may come before the first one.
        self._errors.clear()
        return answers


def _refusal(error: KafkaError, access: KafkaAccess) -> StreamjoinError | None:
    """The permanent failure that an error of the client means. None: it may be transient."""
    message, servers, security = error.str(), access.bootstrap_servers, access.security
    if security is None:
        return None
    is_msk = security.mechanism is Mechanism.AWS_MSK_IAM
    if is_msk and "OAUTHBEARER token" in message:  # the start has found credentials
        return BrokerError(f"AWS returns no credentials for kafka.security: {message}")
    if "OAUTHBEARER token" in message:
        where = f"{security.token_endpoint} returns no token: {message}"
        if "error" in message:  # the endpoint's own response, by RFC 6749
            return SecurityError(f"{where}; check client_id, client_secret_file and scope")
        return BrokerError(
            f"{where}; check kafka.security.token_endpoint, as seen from this machine"
        )
    if error.code() == KafkaError._AUTHENTICATION:
        what = "the token" if security.mechanism is Mechanism.OAUTHBEARER else "user and password"
        remedy = f"Correct {what} in kafka.security, or contact the administrator of the broker"
        if is_msk:
            remedy = (
                "Correct kafka.security.region, or allow kafka-cluster:Connect in the IAM policy"
            )
        return SecurityError(
            f"Kafka at {servers} refuses the login ({security}): {message}. {remedy}, then "
            "`restart`"
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
