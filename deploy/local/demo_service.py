"""Reads the state of the job from the service's public HTTP API."""

import http.client
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from prometheus_client.parser import text_string_to_metric_families

from deploy.local.demo_load import SIDES, Side
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

    @property
    def lag(self) -> int | None:
        behind = [self.query.side(side).offsets_behind_latest_total for side in SIDES]
        known = [records for records in behind if records is not None]
        return sum(known) if known else None


def figures(url: str) -> Figures | None:
    """The current figures. None: the service, or the job behind it, does not answer."""
    try:
        return Figures(_client(url).query(), _samples(_metrics(url)))
    except (StreamjoinError, OSError, http.client.HTTPException):
        return None


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
