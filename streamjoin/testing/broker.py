"""The broker and the container network that the tests of a session share."""

import os
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

from testcontainers.core.network import Network

from streamjoin.testing.images import Images, explain_container_errors
from streamjoin.testing.join import RunningJoin
from streamjoin.testing.kafka_container import KafkaContainer
from streamjoin.testing.spec import SpecAtTest
from streamjoin.testing.topics import Topics
from streamjoin.testing.waiting import wait_until

# A broker takes seconds to start, and many seconds on a busy machine.
START_SECONDS = 120.0


class Broker:
    """`with Broker() as broker:` starts the broker; the end of `with` removes it and its joins."""

    def __init__(self, images: Images | None = None) -> None:
        self.images = images or Images.of()
        self.network = Network()
        self._open = ExitStack()
        self._kafka = KafkaContainer(self.images.kafka, self.network)

    def __enter__(self) -> Self:
        with ExitStack() as opened, explain_container_errors(self.images):
            opened.enter_context(self.network)
            opened.enter_context(self._kafka)
            self.topics = Topics(self.servers)
            wait_until(self.topics.answers, START_SECONDS, self._not_ready)
            self._open = opened.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._open.close()

    @property
    def servers(self) -> str:
        """`host:port` for programs on this machine."""
        return self._kafka.servers

    def start(self, spec: Path | str, environment: Mapping[str, str] = os.environ) -> RunningJoin:
        """The join of the spec file `spec`, with new, empty topics; `with` waits until it is ready.

        `environment` fills `${VAR}` in the file. Brokers and checkpoint of the file are not used.
        Raises SpecError for an invalid file.
        """
        at_test = SpecAtTest.of(Path(spec), self._kafka.servers_inside, environment)
        return RunningJoin(at_test, self.images, self.network, self.topics, self.servers)

    def _not_ready(self) -> str:
        out, err = self._kafka.get_logs()
        log = (out + err).decode(errors="replace")[-2000:]
        return f"Kafka ({self.images.kafka}) does not answer at {self.servers}; its log:\n{log}"
