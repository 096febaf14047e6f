"""How the job runs on this machine, from the environment. What is joined is the spec's affair."""

import os
from datetime import timedelta
from pathlib import Path
from typing import TypeVar

from pydantic import Field, ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict

from job.errors import SetupError

Settings = TypeVar("Settings", bound=BaseSettings)

# The commit topic has a partition for each, and Spark a task; Kafka's brokers hold some thousand.
_STATE_PARTITIONS_MAX = 10_000
_DAY_SECONDS = 86_400.0
# Both processes look here when they are started from one folder, as in `make run`.
SOCKET = Path("data/streamjoin.sock")


class JobSettings(BaseSettings):
    """Each field is the variable STREAMJOIN_<FIELD>."""

    model_config = SettingsConfigDict(env_prefix="STREAMJOIN_", frozen=True)

    socket: Path = SOCKET
    """The Unix-domain socket on which the sidecar reaches the job."""
    jars: Path = Path(__file__).parents[1] / ".jars" / "spark"
    """The folder with Spark's Kafka connector."""
    spark_master: str = "local[*]"
    checkpoint_is_shared: bool = False
    """On a cluster: that a checkpoint on a path is on a file system all machines have there."""
    driver_memory: str = "2g"
    """Heap of the JVM; RocksDB's memory comes on top of it."""
    state_partitions: int | None = Field(default=None, ge=1, le=_STATE_PARTITIONS_MAX)
    """Into how many parts a new checkpoint splits the join state; omitted, one per core."""
    new_query: bool = False
    """Whether a new checkpoint may replace another query of the same name."""
    grace_seconds: float = Field(default=45, gt=0, le=_DAY_SECONDS)
    """How long a stop waits for the batch at work before it is cut short."""
    restart_delay_max_seconds: float = Field(default=60, gt=0, le=_DAY_SECONDS)
    """The longest pause between two tries after failures that may pass by themselves."""

    @property
    def partitions_of_new_state(self) -> int:
        return self.state_partitions or os.cpu_count() or 1

    @property
    def is_on_cluster(self) -> bool:
        """Whether Spark's executors are processes of their own, on other machines perhaps."""
        return self.spark_master != "local" and not self.spark_master.startswith("local[")

    @property
    def grace(self) -> timedelta:
        return timedelta(seconds=self.grace_seconds)


def settings_of(kind: type[Settings]) -> Settings:
    """`kind` from the environment; SetupError names each variable that cannot be used."""
    try:
        return kind()
    except ValidationError as error:
        wrong = (
            f"STREAMJOIN_{str(found['loc'][0]).upper()}: {found['msg']} (written: {found['input']})"
            for found in error.errors(include_url=False)
        )
        raise SetupError("; ".join(wrong)) from error
