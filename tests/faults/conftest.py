"""The broker of the fault tests: theirs alone, behind a proxy, as they break both."""

from collections.abc import Iterator

import pytest

from deploy.local.kafka import EmbeddedKafka
from tests.faults.proxy import Proxy
from tests.faults.rig import proxied_kafka


@pytest.fixture(scope="session")
def faulty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[EmbeddedKafka, Proxy]]:
    """A test that breaks one of them heals it."""
    with proxied_kafka(tmp_path_factory.mktemp("faulty-kafka")) as both:
        yield both


@pytest.fixture
def kafka(faulty: tuple[EmbeddedKafka, Proxy]) -> EmbeddedKafka:
    """Without the proxy."""
    return faulty[0]
