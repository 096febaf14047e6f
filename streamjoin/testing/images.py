"""Which images the containers are made of, and whether there is an engine to run them."""

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


@contextmanager
def told_of_images(images: Images) -> Iterator[None]:
    """What the engine says of a container that it cannot start, with what to do."""
    try:
        yield
    except APIError as error:
        raise SetupError(
            f"a container cannot be started: {error.explanation or error}. The images are "
            f"{images.kafka}, {images.job} and {images.service}: build or pull them, or name "
            "others by $KAFKA_IMAGE, $JOB_IMAGE and $SERVICE_IMAGE. Testcontainers takes one more, "
            "testcontainers/ryuk, unless TESTCONTAINERS_RYUK_DISABLED=true"
        ) from error


def engine_missing() -> str | None:
    """Why no container can be started here; None where one can."""
    try:
        DockerClient().client.ping()
    except DockerException as error:
        return f"no Docker engine answers ({error}): https://docs.docker.com/engine/install/"
    return None
