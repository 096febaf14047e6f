"""Reads the state of the job from the service's public HTTP API."""

import http.client
import json
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from prometheus_client.parser import text_string_to_metric_families
from pydantic import BaseModel

from deploy.local.demo_load import SIDES, Side

# The service itself waits a second for the job.
ANSWER_SECONDS = 3.0
# A proxy from the environment cannot reach the loopback addresses of this machine.
_DIRECTLY = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class SideAnswer(BaseModel):
    input_records: int
    offsets_behind_latest_total: int | None


class BatchAnswer(BaseModel):
    duration_seconds: float
    input_records: int
    state_rows: int | None


class FailureAnswer(BaseModel):
    message: str


class QueryAnswer(BaseModel):
    """The fields of GET /v1/query that the demo shows."""

    state: str
    phase: str | None = None
    watermark: datetime | None
    last_batch: BatchAnswer | None
    last_failure: FailureAnswer | None
    left: SideAnswer
    right: SideAnswer

    def side(self, side: Side) -> SideAnswer:
        return self.left if side == "left" else self.right


Labels = frozenset[tuple[str, str]]


@dataclass(frozen=True)
class Figures:
    query: QueryAnswer
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
        query = QueryAnswer.model_validate_json(_got(f"{url}/v1/query"))
        return Figures(query, _samples(_got(f"{url}/metrics")))
    except (OSError, http.client.HTTPException):
        return None


def is_ready(url: str) -> bool:
    try:
        return bool(json.loads(_got(f"{url}/readyz")))
    except (OSError, http.client.HTTPException):
        return False


def _got(url: str) -> str:
    with _DIRECTLY.open(url, timeout=ANSWER_SECONDS) as answer:
        content: bytes = answer.read()
    return content.decode()


def _samples(exposition: str) -> dict[tuple[str, Labels], float]:
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(exposition)
        for sample in family.samples
    }
