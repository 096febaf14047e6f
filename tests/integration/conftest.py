"""One real broker for all integration tests of a worker."""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.local.kafka import EmbeddedKafka
from tests.brokers import BROKER_OPTIONS
from tests.integration.failpoint import Failpoint
from tests.integration.jvms import jvm  # noqa: F401

# A shell starts background programs with SIGINT ignored, which the programs under test would
# inherit.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="package")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedKafka]:
    """Shared: each test has its own topics, and no test stops or kills this broker."""
    with EmbeddedKafka(tmp_path_factory.mktemp("kafka"), jvm_options=BROKER_OPTIONS) as broker:
        yield broker


@pytest.fixture
def failpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Failpoint:
    return Failpoint(tmp_path, monkeypatch)
