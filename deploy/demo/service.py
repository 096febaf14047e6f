"""Reads the state of the job from the service's public HTTP API."""

import http.client
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from prometheus_client.parser import text_string_to_metric_families

from deploy.demo.load import SIDES, Side
from job.api.client import HttpClient
from job.api.query import QueryView
from job.errors import StreamjoinError

# The service itself waits a second for the job.
ANSWER_SECONDS = 3.0
# A proxy from the environment cannot reach the loopback addresses of this machine.
_DIRECTLY = urllib.request.build_opener(urllib.request.ProxyHandler({}))

Labels = frozenset[tuple[str, str]]


@dataclass(frozen=True)
class Figures:
    query: QueryView
    samples: Mapping[tuple[str, Labels], float]
    """The samples of GET /metrics, by name and labels."""

    def metric(self, name: str, **labels: str) -> int:
        return int(self.samples.get((f"streamjoin_{name}", frozenset(labels.items())), 0))

    def bad_records(self, side: Side, reason: str) -> int:
        return self.metric("bad_records_total", side=side, reason=reason)

    def bad_reasons(self, side: Side) -> set[str]:
        """Reasons for which the job has counted bad records of this side."""
        return {
            dict(labels)["reason"]
            for (name, labels), value in self.samples.items()
            if name == "streamjoin_bad_records_total" and value and ("side", side) in labels
        }


def figures(url: str) -> Figures | None:
    """The current figures. None: the service, or the job behind it, does not answer."""
    try:
        return Figures(_client(url).query(), _samples(_metrics(url)))
    except (StreamjoinError, OSError, http.client.HTTPException):
        return None


def has_read(url: str, ends: Mapping[tuple[Side, int], int]) -> bool:
    """Whether the job has read each partition up to this offset. False if it does not answer."""
    try:
        offsets = _client(url).offsets()
    except (StreamjoinError, OSError, http.client.HTTPException):
        return False
    read = {
        (side, int(number)): partition.read or 0
        for side in SIDES
        for number, partition in offsets.side(side).partitions.items()
    }
    return all(read.get(place, 0) >= end for place, end in ends.items())


@cache
def _client(url: str) -> HttpClient:
    return HttpClient(url, token=None, name=None)


def _metrics(url: str) -> str:
    with _DIRECTLY.open(f"{url}/metrics", timeout=ANSWER_SECONDS) as answer:
        content: bytes = answer.read()
    return content.decode()


def _samples(exposition: str) -> dict[tuple[str, Labels], float]:
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(exposition)
        for sample in family.samples
    }
