"""Ports of the servers that demo and tests start."""

import socket

import pytest

from deploy.local.ports import HOST, answers, free_ports
from job.errors import BrokerError


def test_reserved_port_is_chosen_once_and_a_server_can_listen_on_it() -> None:
    [port] = free_ports(range(24_000, 25_000), 1)

    with pytest.raises(BrokerError, match="no free port"):
        free_ports(range(port, port + 1), 1)
    with socket.create_server((HOST, port)):  # sets SO_REUSEADDR
        assert answers(port)
    with socket.create_server((HOST, port)):  # the server starts again
        assert answers(port)


def test_port_of_a_server_is_not_free() -> None:
    with socket.create_server((HOST, 0)) as server:
        port = server.getsockname()[1]
        with pytest.raises(BrokerError, match="no free port"):
            free_ports(range(port, port + 1), 1)
