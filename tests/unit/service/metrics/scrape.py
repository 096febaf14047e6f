"""A scrape of the service as values."""

from collections.abc import Iterable

from prometheus_client import Metric as Family
from prometheus_client.parser import text_string_to_metric_families

from job.protocol.status import JobStatus, Phase
from service.metrics.exposition import METRICS, exposition
from tests.unit.service.builders import NOW, batch, status_after

DEFINITIONS = [metric for metrics in METRICS.values() for metric in metrics]
NAMES = {metric.name for metric in DEFINITIONS}
FULL = status_after(batch()).model_copy(
    update={
        "totals": status_after(batch()).totals.with_failure("broker").with_restart(),
        "phase": Phase.LOADING_TABLE,
        "table": "right",
        "table_records_left": 70,
        "lineage_events": {"sent": 3, "dropped": 1},
    }
)
"""A status for which every metric has a value."""


def families(status: JobStatus | None) -> list[Family]:
    body, _ = exposition(status, NOW, "")
    return [*text_string_to_metric_families(body.decode())]


def names(status: JobStatus | None) -> set[str]:
    """Names of the metrics with a sample."""
    return {name(family) for family in families(status) if family.samples}


def name(family: Family) -> str:
    return f"{family.name}_total" if family.type == "counter" else family.name


def samples(status: JobStatus | None) -> dict[str, float]:
    return {
        sample.name + _label_text(sample.labels.items()): sample.value
        for family in families(status)
        for sample in family.samples
    }


def _label_text(pairs: Iterable[tuple[str, str]]) -> str:
    text = ",".join(f"{label}={value}" for label, value in sorted(pairs))
    return f"{{{text}}}" if text else ""


def only(values: dict[str, float], part: str) -> dict[str, float]:
    return {name: value for name, value in values.items() if part in name}
