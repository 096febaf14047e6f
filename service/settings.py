"""Settings of the service, read from the environment."""

from datetime import timedelta
from ipaddress import ip_address
from pathlib import Path

from pydantic import ConfigDict, Field

from job.settings import SOCKET, EnvironmentSettings, LogFormat
from service.health import Limits


class ServiceSettings(EnvironmentSettings):
    """Settings of the service. Each field is the environment variable STREAMJOIN_<FIELD>."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    host: str = Field(default="127.0.0.1", min_length=1)
    """Address to listen on. On an address that is not loopback, commands need a token."""
    port: int = Field(default=8080, ge=0, le=65535)
    """Port to listen on."""
    tokens_file: Path | None = None
    """File with bearer tokens and their scopes. Unset: anyone who can reach the port can read,
    and only local clients can send commands."""
    metrics_open: bool = False
    """Serve /metrics without a token."""
    tls_cert_file: Path | None = None
    """PEM certificate chain. With it the service serves only https."""
    tls_key_file: Path | None = None
    """PEM private key of the certificate, without password. Renewed files need a restart."""
    socket: Path = SOCKET
    """Unix-domain socket of the job."""
    job_answer_seconds: float = Field(default=1.0, gt=0)
    """Timeout of a call to the job. Prometheus waits 10 s for a scrape, and a kubelet 1 s for a
    probe."""
    log_format: LogFormat = "auto"
    """`json`: every line of the log is a JSON object, on a terminal, too."""
    lookup_seconds: float = Field(default=30.0, gt=0)
    """Timeout of state, explain and validate, including the wait for their turn."""
    progress_age_max_seconds: float = Field(default=60.0, gt=0)
    """/readyz fails if the query has made no progress for this long. An idle query reports
    progress every 10 s, with engine real_time every 2 s."""
    lag_max_records: int | None = Field(default=None, ge=0)
    """/readyz fails if a side has more unread records. Unset: no limit."""
    watermark_lag_max_seconds: float | None = Field(default=None, gt=0)
    """/readyz fails if the watermark is further behind the clock. Unset: no limit."""

    @property
    def job_answer(self) -> timedelta:
        return timedelta(seconds=self.job_answer_seconds)

    @property
    def lookup(self) -> timedelta:
        return timedelta(seconds=self.lookup_seconds)

    @property
    def limits(self) -> Limits:
        return Limits(
            progress_age=timedelta(seconds=self.progress_age_max_seconds),
            lag_records=self.lag_max_records,
            watermark_lag_seconds=self.watermark_lag_max_seconds,
        )

    @property
    def is_local(self) -> bool:
        """Whether only local clients can reach the service."""
        return is_loopback(self.host)


def is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
