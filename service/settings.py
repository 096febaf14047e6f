"""How the sidecar runs on this machine, from the environment."""

from datetime import timedelta
from ipaddress import ip_address
from pathlib import Path

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict

from job.settings import SOCKET


class ServiceSettings(BaseSettings):
    """Each field is the variable STREAMJOIN_<FIELD>."""

    model_config = SettingsConfigDict(env_prefix="STREAMJOIN_", frozen=True)

    host: str = Field(default="127.0.0.1", min_length=1)
    """On any other than this machine's loopback, calls that command the query are refused."""
    port: int = Field(default=8080, ge=0, le=65535)
    socket: Path = SOCKET
    """The Unix-domain socket on which the job answers."""
    job_answer_seconds: float = Field(default=1.0, gt=0)
    """How long a call waits for the job; Prometheus gives a scrape 10 s, a kubelet a probe 1 s."""
    progress_age_max_seconds: float = Field(default=60.0, gt=0)
    """Without progress for longer, the query is not ready. When idle, Spark reports every 10 s."""

    @property
    def job_answer(self) -> timedelta:
        return timedelta(seconds=self.job_answer_seconds)

    @property
    def progress_age_max(self) -> timedelta:
        return timedelta(seconds=self.progress_age_max_seconds)

    @property
    def is_local(self) -> bool:
        """Whether only this machine can reach the sidecar."""
        return is_loopback(self.host)


def is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
