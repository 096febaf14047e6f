"""One broker for the tests of this folder that neither stop nor kill it."""

from collections.abc import Iterator

import pytest

from deploy.local.kafka import EmbeddedKafka
from tests.brokers import BROKER_OPTIONS


@pytest.fixture(scope="package")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedKafka]:
    with EmbeddedKafka(tmp_path_factory.mktemp("kafka"), jvm_options=BROKER_OPTIONS) as broker:
        yield broker
