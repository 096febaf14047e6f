"""The model that `streamjoin plan` estimates by: fitted to the measured runs, and checked against
them.

    python -m bench.model     prints the error of each run; exit 1 if one is too large

bench/model.toml records the runs. Those of `python -m bench` give rows per CPU-second and memory,
those of `python -m bench.capacity` bytes of state. job/plan/capacity.py contains the model.
"""

import sys
import tomllib
from dataclasses import dataclass
from math import sqrt
from pathlib import Path
from typing import Any

from rich.box import MARKDOWN
from rich.table import Table

from bench.load import Workload
from bench.report import printed
from bench.running import Task
from bench.sql import SQL
from bench.streamjoin import join_spec
from job.plan.capacity import MODEL, row_bytes
from job.plan.plan import JoinPlan
from job.plan.planner import join_plan
from job.spec.output import Delivery
from job.spec.spec import spec_from_yaml

NOTES = Path(__file__).with_name("model.toml")


@dataclass(frozen=True)
class Constant:
    """One figure of the model, and its value in each run."""

    name: str
    modelled: float
    spread: float
    measured: dict[str, float]

    @property
    def fitted(self) -> float:
        """As far from the lowest as from the highest, in proportion."""
        return sqrt(min(self.measured.values()) * max(self.measured.values()))

    @property
    def beyond(self) -> list[str]:
        """Runs that are further off than the model promises."""
        return [run for run, value in self.measured.items() if self._off(value) > self.spread]

    @property
    def furthest(self) -> float:
        return max(self._off(value) for value in self.measured.values())

    def _off(self, value: float) -> float:
        return max(value / self.modelled, self.modelled / value)


def constants(notes: Path = NOTES) -> list[Constant]:
    runs = tomllib.loads(notes.read_text())
    benchmark, state = runs["benchmark"], runs["state"]
    stored = [run for run in state if run["held"]]
    evicted = [run for run in state if not run["held"]]
    return [
        Constant(
            "rows_per_cpu_second",
            MODEL.rows_per_cpu_second,
            MODEL.cpu_spread,
            _each(benchmark, "rows_per_cpu_second"),
        ),
        Constant("busy_cores", MODEL.busy_cores, MODEL.cpu_spread, _each(benchmark, "job_cores")),
        Constant(
            "memory_bytes",
            MODEL.memory_bytes,
            MODEL.memory_spread,
            _each(benchmark, "peak_memory_bytes"),
        ),
        Constant(
            "state_per_byte",
            MODEL.state_per_byte,
            MODEL.bytes_spread,
            {run["run"]: run["state_bytes"] / (run["rows"] * _width(run)) for run in stored},
        ),
        Constant(
            "changes_per_byte",
            MODEL.changes_per_byte,
            MODEL.bytes_spread,
            {run["run"]: run["changelog_bytes"] / (run["rows"] * _width(run)) for run in evicted},
        ),
    ]


def _each(runs: list[dict[str, Any]], figure: str) -> dict[str, float]:
    return {run["run"]: run[figure] for run in runs if figure in run}


def _width(run: dict[str, Any]) -> int:
    """Bytes of a row in state; both sides of the benchmark's join have the same."""
    plan = benchmark_plan()
    return row_bytes(plan, plan.left, run["text_bytes"])


def benchmark_plan() -> JoinPlan:
    task = Task(Workload("inner"), "localhost:9092", "left", "right", "output")
    text = join_spec(task, Path("/checkpoint"), Delivery.EXACTLY_ONCE)
    return join_plan(spec_from_yaml(text, {}), SQL, state_partitions=2)


def main() -> int:
    model = constants()
    table = Table("constant", "modelled", "fitted", "spread", "furthest run", "runs", box=MARKDOWN)
    for constant in model:
        figures = (constant.modelled, constant.fitted, constant.spread, constant.furthest)
        table.add_row(constant.name, *map(_written, figures), str(len(constant.measured)))
    print(printed(table))
    beyond = [f"{constant.name}: {run}" for constant in model for run in constant.beyond]
    for line in beyond:
        print(f"further off than the model promises: {line}")
    return 1 if beyond else 0


def _written(value: float) -> str:
    return f"{value:,.0f}" if value >= 1_000 else f"{value:.2f}"


if __name__ == "__main__":
    sys.exit(main())
