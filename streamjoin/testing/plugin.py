"""Fixtures. Activate them with `pytest_plugins = ["streamjoin.testing.plugin"]` in conftest.py."""

import os
from collections.abc import Callable, Iterator

import pytest

from streamjoin.testing.broker import Broker
from streamjoin.testing.images import engine_missing
from streamjoin.testing.join import RunningJoin

# Set in CI, where a skipped test must fail.
REQUIRED = "DOCKER_REQUIRED"


@pytest.fixture(scope="session")
def broker() -> Iterator[Broker]:
    """One broker for the session. Each join creates its own topics and deletes them."""
    if reason := engine_missing():
        if os.environ.get(REQUIRED):
            pytest.fail(reason)
        pytest.skip(reason)
    with Broker() as started:
        yield started


@pytest.fixture
def start_join(broker: Broker) -> Callable[..., RunningJoin]:
    """`with start_join("join.yaml") as join:`"""
    return broker.start
