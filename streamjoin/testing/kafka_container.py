"""A Kafka node as a container, reachable from other containers and from this machine."""

import shlex
from typing import Self

from testcontainers.core.container import DockerContainer
from testcontainers.core.network import Network
from testcontainers.core.transferable import build_transfer_tar

ALIAS = "kafka"
INSIDE_PORT = 9092
OUTSIDE_PORT = 9094

_START_SCRIPT = "/tmp/start-kafka.sh"  # noqa: S108  # inside the container
# Start script of apache/kafka.
_RUN = "/etc/kafka/docker/run"
# No limit: event times of a test, and with them Kafka timestamps, may be arbitrary.
_UNLIMITED_MS = str(2**62)

_SETTINGS = {
    "KAFKA_NODE_ID": "1",
    "KAFKA_PROCESS_ROLES": "broker,controller",
    "KAFKA_LISTENERS": f"INSIDE://:{INSIDE_PORT},CONTROLLER://:9093,OUTSIDE://:{OUTSIDE_PORT}",
    "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": (
        "INSIDE:PLAINTEXT,CONTROLLER:PLAINTEXT,OUTSIDE:PLAINTEXT"
    ),
    "KAFKA_INTER_BROKER_LISTENER_NAME": "INSIDE",
    "KAFKA_CONTROLLER_LISTENER_NAMES": "CONTROLLER",
    "KAFKA_CONTROLLER_QUORUM_VOTERS": "1@localhost:9093",
    # A misspelt topic is an error, not a new topic.
    "KAFKA_AUTO_CREATE_TOPICS_ENABLE": "false",
    # The defaults need three brokers: with one, transactions and groups wait indefinitely.
    "KAFKA_OFFSETS_TOPIC_REPLICATION_FACTOR": "1",
    "KAFKA_TRANSACTION_STATE_LOG_REPLICATION_FACTOR": "1",
    "KAFKA_TRANSACTION_STATE_LOG_MIN_ISR": "1",
    "KAFKA_SHARE_COORDINATOR_STATE_TOPIC_REPLICATION_FACTOR": "1",
    "KAFKA_SHARE_COORDINATOR_STATE_TOPIC_MIN_ISR": "1",
    # By default 50 partitions each, which take a second or two to create.
    "KAFKA_OFFSETS_TOPIC_NUM_PARTITIONS": "1",
    "KAFKA_TRANSACTION_STATE_LOG_NUM_PARTITIONS": "1",
    "KAFKA_GROUP_INITIAL_REBALANCE_DELAY_MS": "0",
    "KAFKA_LOG_RETENTION_MS": "-1",
    "KAFKA_LOG_MESSAGE_TIMESTAMP_BEFORE_MAX_MS": _UNLIMITED_MS,
    "KAFKA_LOG_MESSAGE_TIMESTAMP_AFTER_MAX_MS": _UNLIMITED_MS,
    "KAFKA_HEAP_OPTS": "-Xms256m -Xmx512m",
}


class KafkaContainer(DockerContainer):
    """`servers_inside` for containers on its network, `servers` for programs on this machine."""

    def __init__(self, image: str, network: Network) -> None:
        super().__init__(image, network=network, network_aliases=[ALIAS])
        self.with_exposed_ports(OUTSIDE_PORT)
        self.with_envs(**_SETTINGS)
        # The broker advertises its port on this machine, which the engine chooses at the start of
        # the container. The entry point therefore waits for a script that contains it.
        waiting = f"until [ -s {_START_SCRIPT} ]; do sleep 0.1; done; . {_START_SCRIPT}"
        self.with_kwargs(entrypoint=["bash", "-c", waiting])

    @property
    def servers_inside(self) -> str:
        return f"{ALIAS}:{INSIDE_PORT}"

    @property
    def servers(self) -> str:
        return f"{self.get_container_host_ip()}:{self.get_exposed_port(OUTSIDE_PORT)}"

    def start(self) -> Self:
        super().start()
        listeners = f"INSIDE://{self.servers_inside},OUTSIDE://{self.servers}"
        script = f"export KAFKA_ADVERTISED_LISTENERS={shlex.quote(listeners)}\nexec {_RUN}\n"
        tar = build_transfer_tar(script.encode(), _START_SCRIPT)
        self.get_wrapped_container().put_archive("/", tar)
        return self
