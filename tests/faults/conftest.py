"""The broker of the fault tests, behind a proxy: no other tests use it, because they break both."""

from collections.abc import Iterator

import pytest

from deploy.local.kafka import EmbeddedKafka
from tests.faults.proxied_kafka import proxied_kafka
from tests.faults.proxy import Counts, Proxy
from tests.integration.jvms import jvm  # noqa: F401


@pytest.fixture(scope="package")
def faulty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[EmbeddedKafka, Proxy]]:
    """A test that breaks broker or proxy heals it."""
    with proxied_kafka(tmp_path_factory.mktemp("faulty-kafka")) as both:
        yield both


@pytest.fixture
def kafka(faulty: tuple[EmbeddedKafka, Proxy]) -> EmbeddedKafka:
    """Without the proxy."""
    return faulty[0]


@pytest.fixture
def proxy(faulty: tuple[EmbeddedKafka, Proxy]) -> Iterator[Proxy]:
    """Its counts begin with zeros. Healed after the test."""
    faulty[1].counts = Counts()
    yield faulty[1]
    faulty[1].heal()
