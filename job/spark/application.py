"""The settings of a Spark application, and what another query in the application changes."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_OF_SESSIONS = "spark.sql."


@dataclass(frozen=True)
class Application:
    master: str
    conf: Mapping[str, str]

    def can_follow(self, running: "Application") -> bool:
        """Whether a session with these settings is possible in the running application."""
        return (self.master, _of_application(self.conf)) == (
            running.master,
            _of_application(running.conf),
        )

    def configure(self, session: "SparkSession", running: "Application") -> None:
        """Set the conf of a new session of the running application. The settings of the
        application itself stay."""
        wanted, set_before = _of_sessions(self.conf), _of_sessions(running.conf)
        for name in set_before.keys() - wanted.keys():
            session.conf.unset(name)
        for name, value in wanted.items():
            if set_before.get(name) != value:
                session.conf.set(name, value)


def _of_sessions(conf: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in conf.items() if name.startswith(_OF_SESSIONS)}


def _of_application(conf: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in conf.items() if not name.startswith(_OF_SESSIONS)}
