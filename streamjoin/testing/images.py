"""Which images the containers are made of, and whether there is an engine to run them."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from docker.errors import DockerException
from testcontainers.core.docker_client import DockerClient


@dataclass(frozen=True)
class Images:
    """The variables have the names that docker-compose.yml reads."""

    kafka: str = "apache/kafka:4.3.1"
    """$KAFKA_IMAGE: apache/kafka, or one that is started by the same file and variables."""
    job: str = "streamjoin-job"
    """$JOB_IMAGE"""
    service: str = "streamjoin-service"
    """$SERVICE_IMAGE"""

    @classmethod
    def of(cls, environment: Mapping[str, str] = os.environ) -> Self:
        named = {name: environment.get(f"{name.upper()}_IMAGE") for name in cls.__annotations__}
        return cls(**{name: image for name, image in named.items() if image})


def engine_missing() -> str | None:
    """Why no container can be started here; None where one can."""
    try:
        DockerClient().client.ping()
    except DockerException as error:
        return f"no Docker engine answers ({error}): https://docs.docker.com/engine/install/"
    return None
