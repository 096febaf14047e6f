"""Settings of the processes, read from the environment. The spec configures the join."""

import os
from datetime import timedelta
from difflib import get_close_matches
from pathlib import Path
from typing import Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from job.errors import SetupError
from job.installation.folders import job_jars

LogFormat = Literal["auto", "json"]

# Each state partition has a Spark task and a partition of the commit topic; a Kafka broker manages
# a few thousand partitions.
STATE_PARTITIONS_MAX = 10_000
_DAY_SECONDS = 86_400.0
# Job and service use the same default if they are started in one folder, as in `make run`.
SOCKET = Path("data/streamjoin.sock")


class EnvironmentSettings(BaseModel):
    """Each field is the environment variable STREAMJOIN_<FIELD>.

    pydantic-settings is not used: its import would take a fifth of `streamjoin validate`.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")


Settings = TypeVar("Settings", bound=EnvironmentSettings)


class JobSettings(EnvironmentSettings):
    """Settings of the job and of the `streamjoin` commands."""

    socket: Path = SOCKET
    """Unix-domain socket on which the service reaches the job."""
    jars: Path = Field(default_factory=job_jars)
    """Folder with Spark's Kafka connector and the compiled classes of the job."""
    spark_master: str = "local[*]"
    checkpoint_is_shared: bool = False
    """On a cluster: a checkpoint without a scheme is on a file system that all machines mount."""
    driver_memory: str = "2g"
    """Heap of the driver's JVM. RocksDB needs memory in addition."""
    state_partitions: int | None = Field(default=None, ge=1, le=STATE_PARTITIONS_MAX)
    """Number of state partitions of a new checkpoint. None: one per core; after a change of the
    join, as many as before."""
    new_query: bool = False
    """Whether a new checkpoint may replace another query of the same name."""
    grace_seconds: float = Field(default=45, gt=0, le=_DAY_SECONDS)
    """How long a stop waits for the running batch before it interrupts the batch."""
    keep_running: bool = False
    """Whether the process stays up when the query has failed for good, so that the service shows
    the reason and `restart` can follow."""
    log_format: LogFormat = "auto"
    """`json`: every line of the log is a JSON object. `auto`: lines of the JVM are plain text."""
    openlineage_url: str | None = None
    """Endpoint of the run events: `/api/v1/lineage` is appended. None: no events."""
    openlineage_namespace: str = Field(default="streamjoin", min_length=1)
    """Namespace of the job in the run events."""
    openlineage_api_key_file: Path | None = None
    """File with the API key, sent as a bearer token. None: the endpoint needs none."""
    openlineage_interval_seconds: float = Field(default=60, ge=1, le=_DAY_SECONDS)
    """Time between two RUNNING events."""
    restart_delay_max_seconds: float = Field(default=60, gt=0, le=_DAY_SECONDS)
    """Maximum delay between two attempts after a retryable failure."""

    @property
    def partitions_of_new_state(self) -> int:
        return self.state_partitions or os.cpu_count() or 1

    @property
    def is_on_cluster(self) -> bool:
        """Whether Spark's executors are separate processes, possibly on other machines."""
        return self.spark_master != "local" and not self.spark_master.startswith("local[")

    @property
    def grace(self) -> timedelta:
        return timedelta(seconds=self.grace_seconds)


def read_settings(kind: type[Settings]) -> Settings:
    """`kind` from the environment. SetupError names each variable with an invalid value, and each
    with a name like that of a setting."""
    names = {name: f"STREAMJOIN_{name.upper()}" for name in kind.model_fields}
    for variable in os.environ:
        if variable.startswith("STREAMJOIN_") and variable not in names.values():
            # Variables of other programs have less similar names.
            for close in get_close_matches(variable, names.values(), n=1, cutoff=0.93):
                raise SetupError(f"unknown variable {variable}: did you mean {close}?")
    written = {
        name: os.environ[variable] for name, variable in names.items() if variable in os.environ
    }
    try:
        return kind.model_validate(written)
    except ValidationError as error:
        invalid = (
            f"{names[str(detail['loc'][0])]}: {detail['msg']} (written: {detail['input']})"
            for detail in error.errors(include_url=False)
        )
        raise SetupError("; ".join(invalid)) from error
