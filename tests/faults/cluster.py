"""A Kafka cluster of two brokers, each behind a proxy, whose partitions change their leaders.

Both brokers have a replica of each partition that moves: its leader moves as in a rebalance of the
cluster, without a stop of a broker.
"""

import socket
import struct
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from confluent_kafka import ElectionType, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from deploy.local.kafka import EmbeddedKafka
from deploy.local.ports import HOST, free_ports
from tests.brokers import BROKER_OPTIONS
from tests.faults.proxy import OpenTransactions, Point, Proxy
from tests.integration.jobs import START_SECONDS
from tests.polling import wait_until

TRANSACTION_STATE = "__transaction_state"
"""Topic of Kafka: the leader of a partition is the coordinator of some transactional ids."""
# Below the ephemeral ports of Linux, and different from those of the other brokers of the tests.
PORTS = range(10_000, 15_000)
_IDS = (1, 2)
_HEAP = ("-Xms64m", "-Xmx192m", "-XX:+UseSerialGC")
_REQUEST_SECONDS = 30.0
_ALTER_PARTITION_REASSIGNMENTS = 45


class Cluster:
    """Two running brokers. `kafka` is the first one, which is also the controller, and `other` the
    second one."""

    def __init__(self, brokers: Sequence[EmbeddedKafka], proxies: Sequence[Proxy]) -> None:
        self.kafka, self.other = brokers
        self.proxies = proxies
        servers = ",".join(broker.bootstrap_servers for broker in brokers)
        self._admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})
        self._leaders: dict[str, dict[int, int]] = {}

    # Leaders

    def leaders(self, topic: str) -> dict[int, int]:
        """Broker id of the leader of each partition. Only this class changes them; for a moment
        after a move a broker can answer with the leaders before."""
        if topic not in self._leaders:
            self._leaders[topic] = self._reported_leaders(topic)
        return self._leaders[topic]

    def _reported_leaders(self, topic: str) -> dict[int, int]:
        partitions = self._admin.list_topics(topic, _REQUEST_SECONDS).topics[topic].partitions
        return {number: partition.leader for number, partition in partitions.items()}

    def replicate(self, topic: str) -> None:
        """Give each broker a replica of each partition. The partitions have different leaders."""
        self._set_leaders(topic, {n: _IDS[n % 2] for n in self.leaders(topic)})

    def place_on_other(self, topic: str) -> None:
        """Return when only the second broker has the partition of the topic."""
        _reassign(self.kafka.bootstrap_servers, topic, {0: (_IDS[1],)})
        self.wait_for_leader(topic, _IDS[1])

    def wait_for_leader(self, topic: str, leader: int) -> None:
        """Of its partition 0. -1: none."""
        wait_until(
            lambda: self._reported_leaders(topic)[0] == leader,
            START_SECONDS,
            f"the leader of {topic} is {leader}",
        )

    def move_leaders(self, topic: str) -> None:
        """Return when the other broker leads each partition."""
        others = {number: _other(leader) for number, leader in self.leaders(topic).items()}
        self._set_leaders(topic, others)

    def _set_leaders(self, topic: str, wanted: Mapping[int, int]) -> None:
        replicas = {number: (leader, _other(leader)) for number, leader in wanted.items()}
        _reassign(self.kafka.bootstrap_servers, topic, replicas)
        partitions = [TopicPartition(topic, number) for number in wanted]

        def have_moved() -> bool:
            # Fails while the replica is behind, and if it already is the leader.
            elected = self._admin.elect_leaders(ElectionType.PREFERRED, partitions)
            try:
                elected.result(_REQUEST_SECONDS)
            except KafkaException as error:
                if not error.args[0].retriable():
                    raise
            return self._reported_leaders(topic) == wanted

        wait_until(have_moved, START_SECONDS, f"the leaders of {topic} are {wanted}")
        self._leaders[topic] = dict(wanted)

    # Faults of the proxies

    def catch(self, *points: Point) -> None:
        """Hold the first request at each point, at the broker that receives it."""
        for proxy in self.proxies:
            proxy.catch(*points)

    def wait_until_caught(self, *points: Point) -> None:
        self.proxies[0].wait_until_caught(*points)

    def cut(self) -> None:
        for proxy in self.proxies:
            proxy.cut()

    def release(self) -> None:
        for proxy in self.proxies:
            proxy.release()

    def heal(self) -> None:
        for proxy in self.proxies:
            proxy.heal()


@contextmanager
def two_brokers(folder: Path) -> Iterator[Cluster]:
    controller, *ports = free_ports(PORTS, 1 + 3 * len(_IDS))
    transactions = OpenTransactions()
    with ExitStack() as stack:
        brokers: list[EmbeddedKafka] = []
        proxies = []
        for place, number in enumerate(_IDS):
            own, proxied, proxy_port = ports[3 * place : 3 * place + 3]
            proxy = stack.enter_context(Proxy(proxy_port, transactions))
            proxy.upstream = f"{HOST}:{proxied}"
            settings = _settings(number, own, proxied, proxy_port, controller)
            brokers.append(
                stack.enter_context(_Broker(folder / f"kafka{number}", own, settings, brokers[:1]))
            )
            proxies.append(proxy)
        yield Cluster(brokers, proxies)


class _Broker(EmbeddedKafka):
    """A broker that joins the cluster of another one."""

    def __init__(
        self,
        folder: Path,
        port: int,
        settings: Mapping[str, object],
        others: Sequence[EmbeddedKafka],
    ) -> None:
        options = (*BROKER_OPTIONS, *_HEAP)
        super().__init__(folder, port=port, jvm_options=options, settings=settings)
        self._others = others

    def _format(self, folder: Path, deadline: float) -> Path:
        data = super()._format(folder, deadline)
        for other in self._others:
            cluster = _cluster_id_line(other._data)
            file = data / "meta.properties"
            file.write_text(file.read_text().replace(_cluster_id_line(data), cluster))
        return data

    def _wait_until_ready(self, deadline: float) -> None:
        count = 1 + len(self._others)
        self._query_until(lambda cluster: len(cluster.brokers) == count, deadline, what="broker")


def _cluster_id_line(data: Path) -> str:
    lines = (data / "meta.properties").read_text().splitlines()
    [line] = [line for line in lines if line.startswith("cluster.id=")]
    return line


def _settings(
    number: int, port: int, proxied: int, proxy_port: int, controller: int
) -> dict[str, object]:
    is_controller = number == _IDS[0]
    listeners = [f"CLIENTS://{HOST}:{port}", f"PROXIED://{HOST}:{proxied}"]
    return {
        "node.id": number,
        "process.roles": "broker,controller" if is_controller else "broker",
        "controller.quorum.voters": f"{_IDS[0]}@{HOST}:{controller}",
        "listeners": ",".join(
            [*listeners, f"CONTROLLER://{HOST}:{controller}"] if is_controller else listeners
        ),
        "advertised.listeners": f"CLIENTS://{HOST}:{port},PROXIED://{HOST}:{proxy_port}",
        "listener.security.protocol.map": (
            "CLIENTS:PLAINTEXT,CONTROLLER:PLAINTEXT,PROXIED:PLAINTEXT"
        ),
        # Of the commit topic, which the job creates.
        "default.replication.factor": len(_IDS),
        "transaction.state.log.replication.factor": len(_IDS),
        # Only the test moves leaders.
        "auto.leader.rebalance.enable": "false",
    }


def _other(broker: int) -> int:
    [other] = {*_IDS} - {broker}
    return other


def _reassign(servers: str, topic: str, replicas: Mapping[int, Sequence[int]]) -> None:
    """Set the replicas of each partition, of which the first one is the preferred leader.

    The client library has no call for the request. Its answer contains no error if it ends with the
    codes of the partitions that are tested here.
    """
    partitions = b"".join(
        struct.pack(f">iB{len(ids)}iB", number, len(ids) + 1, *ids, 0)
        for number, ids in replicas.items()
    )
    body = b"".join(
        (
            struct.pack(">iB", int(_REQUEST_SECONDS * 1000), 2),  # one topic
            *(struct.pack(">B", len(topic) + 1), topic.encode()),
            *(struct.pack(">B", len(replicas) + 1), partitions, b"\0\0"),
        )
    )
    head = struct.pack(">hhihB", _ALTER_PARTITION_REASSIGNMENTS, 0, 1, -1, 0)
    host, port = servers.split(":")
    with socket.create_connection((host, int(port)), _REQUEST_SECONDS) as connection:
        connection.sendall(struct.pack(">i", len(head + body)) + head + body)
        answers = connection.makefile("rb")
        [length] = struct.unpack(">i", answers.read(4))
        answer = answers.read(length)
    # Correlation id, tagged fields, throttle time, and then the code of the whole request.
    [code] = struct.unpack_from(">h", answer, 9)
    assert 0 == code, answer
    # Each partition: its number, code, no message, no tagged fields.
    for number in replicas:
        assert struct.pack(">ihBB", number, 0, 0, 0) in answer, answer
