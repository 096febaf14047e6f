"""What every integration test stands on: one real broker for the whole run."""

import signal
from collections.abc import Iterator

import pytest

from deploy.local.kafka import EmbeddedKafka
from tests.integration.jobs import BROKER_OPTIONS

# What a shell starts in the background ignores Ctrl-C, and so would the programs under test.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedKafka]:
    """Shared: a test gives its topics names of their own, and neither stops nor kills this one."""
    with EmbeddedKafka(tmp_path_factory.mktemp("kafka"), jvm_options=BROKER_OPTIONS) as broker:
        yield broker
