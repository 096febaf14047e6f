"""Rounds of programs that compare the CPU time of dataflows as batches on one core, without Kafka.

All dataflows run in turn in each round. The first rounds warm up the JVM and do not count.
"""

import argparse
import os
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import psutil
from pyspark.sql import DataFrame, SparkSession
from rich.box import MARKDOWN
from rich.table import Table

from bench.processes import tree_usage
from bench.report import machine, printed
from deploy.local.jars import jar_folder
from deploy.local.java import java_home
from job.java_jar import JAVA_JAR
from job.plan.tuning import CONF

_WARM_UP_ROUNDS = 2


def arguments(program: str, description: str, *, records: str) -> argparse.Namespace:
    """`records`: help text of the option."""
    parser = argparse.ArgumentParser(prog=program, description=description)
    parser.add_argument("--records", type=int, default=200_000, help=f"{records} (200,000)")
    parser.add_argument("--rounds", type=int, default=5, help="that count (5)")
    return parser.parse_args()


@contextmanager
def spark_session() -> Iterator[SparkSession]:
    os.environ["JAVA_HOME"] = str(java_home())
    conf: dict[str, bool | float | int | str | None] = {
        **CONF,
        "spark.sql.shuffle.partitions": "1",
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.autoBroadcastJoinThreshold": "-1",
        "spark.driver.memory": "2g",
        "spark.driver.extraClassPath": str(jar_folder("spark") / JAVA_JAR),
    }
    spark = SparkSession.builder.master("local[1]").config(map=conf).getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    try:
        yield spark
    finally:
        spark.stop()


def measure(
    dataflows: Mapping[str, Callable[[], DataFrame]], *, rows: int, rounds: int
) -> dict[str, list[float]]:
    """Rows per CPU-second of each dataflow in each round. `rows`: rows that a dataflow reads."""
    rates: dict[str, list[float]] = {name: [] for name in dataflows}
    for number in range(_WARM_UP_ROUNDS + rounds):
        for name, dataflow in dataflows.items():
            seconds = _cpu_seconds(dataflow())
            if number >= _WARM_UP_ROUNDS:
                rates[name].append(rows / seconds)
    return rates


def _cpu_seconds(results: DataFrame) -> float:
    """User and system time of this process and its JVM while all results are computed."""
    root = psutil.Process()
    before, _ = tree_usage(root)
    results.write.format("noop").mode("overwrite").save()
    return tree_usage(root)[0] - before


def report(rates: Mapping[str, Sequence[float]], *, subject: str, unit: str) -> str:
    """The machine, and a table of the rates. The first one is the base of comparison."""
    base_name = next(iter(rates))
    base = statistics.median(rates[base_name])
    columns = (subject, f"{unit} per CPU-second", "lowest", "highest", f"of {base_name}")
    table = Table(*columns, box=MARKDOWN)
    for name, of_rounds in rates.items():
        median = statistics.median(of_rounds)
        figures = (f"{rate:,.0f}" for rate in (median, min(of_rounds), max(of_rounds)))
        table.add_row(name, *figures, f"{median / base:.2f}")
    return f"{machine()}\n{printed(table)}"
