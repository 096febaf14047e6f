"""Ports for servers that must be found again where they were."""

import random
import socket

HOST = "127.0.0.1"
# Beside Kafka's, and below those that Linux hands to outgoing connections (deploy/local/kafka.py).
_PORTS = range(30_000, 32_000)


def free_port() -> int:
    for port in random.sample(_PORTS, 100):
        if not answers(port):
            return port
    raise AssertionError(f"no free port found between {_PORTS.start} and {_PORTS.stop}")


def answers(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex((HOST, port)) == 0
