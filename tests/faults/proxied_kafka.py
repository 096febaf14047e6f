"""A broker behind a proxy, which can break the connections of its clients."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from deploy.local.kafka import EmbeddedKafka
from deploy.local.ports import free_ports
from tests.brokers import BROKER_OPTIONS
from tests.faults.proxy import Proxy

# Below the ephemeral ports of Linux, and different from EmbeddedKafka's own.
PORTS = range(15_000, 20_000)


@contextmanager
def proxied_kafka(folder: Path, **settings: Any) -> Iterator[tuple[EmbeddedKafka, Proxy]]:
    """A broker with a second listener whose clients connect through the proxy.

    It aborts transactions that are too old 10 s after its start at the earliest, Kafka's default.
    In its first moments Kafka 4.3.1 would write no end of a transaction (docs/delivery.md).
    """
    port, proxy_port = free_ports(PORTS, 2)
    listeners = f"CLIENTS://127.0.0.1:{port},PROXIED://127.0.0.1:{proxy_port}"
    broker = EmbeddedKafka(
        folder,
        port=port,
        jvm_options=BROKER_OPTIONS,
        listeners={"PROXIED": "PLAINTEXT"},
        settings={"advertised.listeners": listeners, **settings},
    )
    with Proxy(proxy_port) as proxy:
        proxy.upstream = broker.servers_of("PROXIED")
        with broker:
            yield broker, proxy
