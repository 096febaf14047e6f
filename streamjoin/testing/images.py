"""Names of the container images, and the check for a Docker engine."""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Self

from docker.errors import APIError, DockerException
from testcontainers.core.docker_client import DockerClient

from job.errors import SetupError


@dataclass(frozen=True)
class Images:
    """Image names, by default those of docker-compose.yml and its environment variables."""

    kafka: str = "apache/kafka:4.3.1"
    """$KAFKA_IMAGE: apache/kafka, or an image with the same start script and variables."""
    job: str = "streamjoin-job"
    """$JOB_IMAGE"""
    service: str = "streamjoin-service"
    """$SERVICE_IMAGE"""

    @classmethod
    def of(cls, environment: Mapping[str, str] = os.environ) -> Self:
        named = {name: environment.get(f"{name.upper()}_IMAGE") for name in cls.__annotations__}
        return cls(**{name: image for name, image in named.items() if image})


@contextmanager
def explain_container_errors(images: Images) -> Iterator[None]:
    """Raise SetupError with the remedy if the engine cannot start a container."""
    try:
        yield
    except APIError as error:
        raise SetupError(
            f"a container cannot be started: {error.explanation or error}. The images are "
            f"{images.kafka}, {images.job} and {images.service}: build or pull them, or set "
            "$KAFKA_IMAGE, $JOB_IMAGE and $SERVICE_IMAGE to other images. Testcontainers "
            "also needs testcontainers/ryuk, unless TESTCONTAINERS_RYUK_DISABLED=true"
        ) from error


def engine_missing() -> str | None:
    """Reason why no container can be started. None: an engine answers."""
    try:
        DockerClient().client.ping()
    except DockerException as error:
        return f"no Docker engine answers ({error}): https://docs.docker.com/engine/install/"
    return None
