"""Ports of the servers that the demo and the tests start on this machine."""

import random
import socket
from itertools import islice

from job.errors import BrokerError

HOST = "127.0.0.1"


def free_ports(ports: range, count: int) -> list[int]:
    """`count` different free ports. No other process gets one of them from this function until this
    process ends.

    A server can listen on them if it sets SO_REUSEADDR, as Kafka does.
    """
    # Not `random` itself: two test processes with equal seeds would try the same ports.
    candidates = random.SystemRandom().sample(ports, min(len(ports), 100))
    free = list(islice(filter(_reserve, candidates), count))
    if len(free) < count:
        raise BrokerError(
            f"no free port found between {ports.start} and {ports.stop}: end programs that listen "
            "there"
        )
    return free


def _reserve(port: int) -> bool:
    """Reserve the port until the process ends. False: a server listens on it, or it is reserved."""
    with socket.socket() as reservation:
        try:
            reservation.bind((HOST, port))
        except OSError:
            return False
        # Linux lets a server bind the same port only if both sockets have this option. A second
        # reservation does not have it yet when it binds.
        reservation.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        reservation.detach()  # stays open
        return True


def answers(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex((HOST, port)) == 0
