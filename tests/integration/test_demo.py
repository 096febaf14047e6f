"""The demo as a program: it checks its results, reports differences, and removes its files."""

import io
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest
from rich.console import Console

from deploy.demo.__main__ import report_result
from deploy.demo.check import check_result
from deploy.demo.joins import STREAMS
from deploy.demo.load import Click, Delivered, Impression, OutputRow, expected_rows
from deploy.demo.service import Figures
from deploy.demo.topics import ID_HEADER, output_rows
from deploy.local.kafka import EmbeddedKafka
from job.spec.engine import Engine
from tests.integration.topics import Sent, produce
from tests.polling import wait_until
from tests.processes import has_ended, name, tree
from tests.unit.service.builders import query_after

REPOSITORY = Path(__file__).parents[2]
SHOWN_MS = 1_790_000_000_000
# 40 s on two idle cores; several times that on a busy machine.
TIMEOUT = 400.0
ALL_TIMEOUTS = 900


@pytest.mark.timeout(ALL_TIMEOUTS)
@pytest.mark.parametrize("join", ["streams", "table"])
def test_timed_run_reports_correct_results_and_leaves_no_process(tmp_path: Path, join: str) -> None:
    with demo(tmp_path / "output", "--demo", join, "--seconds", "4") as run:
        run.wait_until_printed("sending for 4 s")
        children = run.children

        assert 0 == run.program.wait(TIMEOUT), run.printed

    assert "Correct: the results match the expected rows, row by row." in run.printed
    assert_ended(children)


@pytest.mark.timeout(ALL_TIMEOUTS)
def test_ctrl_c_ends_all_of_it_in_reverse_order(tmp_path: Path) -> None:
    with demo(tmp_path / "output") as run:
        run.wait_until_printed("until Ctrl-C")
        children = run.children

        run.program.send_signal(signal.SIGINT)

        assert 0 == run.program.wait(TIMEOUT), run.printed

    stops = [line.split("  ")[1] for line in run.printed.splitlines() if " stopped " in line]
    assert ["service stopped", "job stopped", "Kafka broker stopped"] == stops
    assert "Traceback" not in run.printed
    assert_ended(children)


def test_differences_on_a_real_topic_are_reported(kafka: EmbeddedKafka) -> None:
    kafka.create_topics({"demo_output": 3})
    delivered = [
        Delivered(Impression(1, SHOWN_MS), 0, 0),
        Delivered(Impression(2, SHOWN_MS), 0, 1),
        Delivered(Click(1, SHOWN_MS + 1), 0, 0),
    ]
    matched, unmatched = expected_rows(delivered)
    foreign = OutputRow("impressions/0/9|", "9", "{}")
    send(kafka, "demo_output", [matched])

    assert (1, ["missing: " + shown(unmatched)]) == demo_result(kafka, "demo_output", delivered)
    send(kafka, "demo_output", [unmatched])
    assert (0, []) == demo_result(kafka, "demo_output", delivered)
    send(kafka, "demo_output", [matched, foreign])
    assert (
        1,
        ["unexpected: " + shown(foreign), "repeated: " + shown(matched)],
    ) == demo_result(kafka, "demo_output", delivered)


@dataclass(frozen=True)
class Run:
    program: subprocess.Popen[bytes]
    output: Path

    @property
    def printed(self) -> str:
        return self.output.read_text()

    @property
    def children(self) -> dict[int, psutil.Process]:
        """Broker, job, its JVM, service."""
        _, *processes = tree(self.program.pid)
        assert 2 == sum(name(process) == "java" for process in processes)
        assert 4 <= len(processes)
        return {process.pid: process for process in processes}

    def wait_until_printed(self, text: str) -> None:
        wait_until(lambda: text in self.printed or self.program.poll() is not None, TIMEOUT, text)
        assert text in self.printed


@contextmanager
def demo(output: Path, *arguments: str) -> Iterator[Run]:
    with output.open("wb") as log:
        program = subprocess.Popen(
            [sys.executable, "-m", "deploy.demo", *arguments],
            stdout=log,
            stderr=subprocess.STDOUT,
            cwd=REPOSITORY,
        )
    try:
        yield Run(program, output)
    finally:
        program.kill()
        program.wait()


def assert_ended(children: dict[int, psutil.Process]) -> None:
    for child in children.values():
        wait_until(lambda process=child: has_ended(process), TIMEOUT, f"{child} has ended")


def send(kafka: EmbeddedKafka, topic: str, rows: list[OutputRow]) -> None:
    records = [Sent(row.value, row.key, {ID_HEADER: row.id}) for row in rows]
    produce(kafka.bootstrap_servers, topic, records)


def demo_result(
    kafka: EmbeddedKafka, topic: str, delivered: list[Delivered]
) -> tuple[int, list[str]]:
    """The exit code, and the printed rows that differ."""
    rows = output_rows(kafka.bootstrap_servers, topic=topic)
    figures = counted(output_records=len(rows))
    result = check_result(STREAMS, Engine.MICRO_BATCH, delivered, rows, figures)
    output = io.StringIO()
    code = report_result(result, Console(file=output, highlight=False))
    return code, [line for line in output.getvalue().splitlines() if "impressions/" in line]


def counted(*, output_records: int) -> Figures:
    name = ("streamjoin_output_records_total", frozenset[tuple[str, str]]())
    return Figures(query_after(left=2, right=1), {name: float(output_records)})


def shown(row: OutputRow) -> str:
    return f"{row.id} key {row.key} {row.value}"
