"""Fixtures, by `pytest_plugins = ["streamjoin.testing.plugin"]` in the topmost conftest.py."""

import os
from collections.abc import Callable, Iterator

import pytest

from streamjoin.testing.broker import Broker
from streamjoin.testing.images import engine_missing
from streamjoin.testing.join import RunningJoin

# Set where a test that is skipped would be a hole: in CI.
REQUIRED = "DOCKER_REQUIRED"


@pytest.fixture(scope="session")
def broker() -> Iterator[Broker]:
    """One for all tests: each join has its topics to itself, and removes them."""
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
