"""How the sidecar runs on this machine, from the environment."""

from datetime import timedelta
from ipaddress import ip_address
from pathlib import Path

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict

from job.settings import SOCKET
from service.health import Limits


class ServiceSettings(BaseSettings):
    """Each field is the variable STREAMJOIN_<FIELD>."""

    model_config = SettingsConfigDict(env_prefix="STREAMJOIN_", frozen=True)

    host: str = Field(default="127.0.0.1", min_length=1)
    """On any other than this machine's loopback, commands need a token."""
    port: int = Field(default=8080, ge=0, le=65535)
    tokens_file: Path | None = None
    """Who may look and who may command: tokens.py. Without it everybody may look, and only this
    machine may command."""
    metrics_open: bool = False
    """Whether /metrics needs no token, as where Prometheus has none."""
    tls_cert_file: Path | None = None
    """PEM: the certificate and those that lead to its CA; then https is served, and no http."""
    tls_key_file: Path | None = None
    """PEM: the certificate's private key, without password. Renewed files need a restart."""
    socket: Path = SOCKET
    """The Unix-domain socket on which the job answers."""
    job_answer_seconds: float = Field(default=1.0, gt=0)
    """How long a call waits for the job; Prometheus gives a scrape 10 s, a kubelet a probe 1 s."""
    look_up_seconds: float = Field(default=30.0, gt=0)
    """How long a call of state, explain or validate may take, the wait for its turn included."""
    progress_age_max_seconds: float = Field(default=60.0, gt=0)
    """Without progress for longer, the query is not ready. When idle, Spark reports every 10 s."""
    lag_max_records: int | None = Field(default=None, ge=0)
    """With more records of a side to be read, the query is not ready; None: however many."""
    watermark_lag_max_seconds: float | None = Field(default=None, gt=0)
    """With its watermark further behind the clock, the query is not ready; None: however far."""

    @property
    def job_answer(self) -> timedelta:
        return timedelta(seconds=self.job_answer_seconds)

    @property
    def look_up(self) -> timedelta:
        return timedelta(seconds=self.look_up_seconds)

    @property
    def limits(self) -> Limits:
        return Limits(
            progress_age=timedelta(seconds=self.progress_age_max_seconds),
            lag_records=self.lag_max_records,
            watermark_lag_seconds=self.watermark_lag_max_seconds,
        )

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
