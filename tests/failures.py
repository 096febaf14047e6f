"""What a failed test leaves: the ends of its jobs' logs, and the state of its brokers.

In `.ci/run` also a file with the messages of all failures, which it prints at its end.
"""

import os
import re
from collections.abc import Generator, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

LOG_LINES = 60
BROKER_LINES = 30
_ANSWER_SECONDS = 5.0
_MESSAGE_LINES = 20


def logs_of(item: pytest.Item) -> list[Path]:
    """Logs of the jobs, brokers and JVMs of a test: of its fixtures, and in its folder."""
    found = [log for value in _fixtures(item) for log in _logs(value, depth=3)]
    folder = _fixtures_by_name(item).get("tmp_path")
    if folder is not None:
        # Kafka and RocksDB name the files of their data with numbers.
        found += [log for log in sorted(folder.rglob("*.log")) if not log.stem.isdecimal()]
    return list(dict.fromkeys(log for log in found if log.is_file()))


def _fixtures_by_name(item: pytest.Item) -> dict[str, Any]:
    return getattr(item, "funcargs", {})


def _fixtures(item: pytest.Item) -> list[Any]:
    return list(_fixtures_by_name(item).values())


def _logs(value: Any, depth: int) -> Iterator[Path]:
    """The attribute `log` of objects of the project. Other objects may run code for each
    attribute, as py4j's do."""
    if isinstance(value, (tuple, list)):
        parts = list(value)
    elif type(value).__module__.startswith(("tests.", "deploy.")):
        if isinstance(log := getattr(value, "log", None), Path):
            yield log
        parts = list(getattr(value, "__dict__", {}).values())
    else:
        return
    if depth:
        for part in parts:
            yield from _logs(part, depth - 1)


def state_of(item: pytest.Item, lines: int = LOG_LINES, *, known: str = "") -> str:
    """Empty if the test has no logs. `known`: text with ends of logs that are left out."""
    return "\n".join(part for log in logs_of(item) for part in _state(log, lines, known))


def _state(log: Path, lines: int, known: str) -> Iterator[str]:
    settings = log.with_name("server.properties")
    if settings.exists():
        yield f"--- broker of {settings}: {_broker(settings)}"
        lines = BROKER_LINES
    text = log.read_text(errors="replace")
    if not known or text[-200:] not in known:
        yield f"--- the last {lines} lines of {log}:"
        yield from text.splitlines()[-lines:]


def _broker(settings: Path) -> str:
    """Whether a broker with this server.properties answers, and its topics."""
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient

    found = re.search(
        r"^advertised\.listeners=\w+://([\w.:]+)",
        settings.read_text(errors="replace"),
        re.MULTILINE,
    )
    if found is None:
        return "no address in its settings"
    client = AdminClient({"bootstrap.servers": found[1], "log_level": 0})
    try:
        topics = client.list_topics(timeout=_ANSWER_SECONDS).topics
    except KafkaException as error:
        return f"no answer at {found[1]}: {error.args[0].str()}"
    names = ", ".join(f"{name} ({len(topic.partitions)})" for name, topic in sorted(topics.items()))
    return f"answers at {found[1]}; topics, with partitions: {names or 'none'}"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed and call.excinfo is not None:
        with suppress(OSError):  # a file that has just been removed
            if state := state_of(item, known=report.capstderr):
                report.sections.append(("logs", state))
    return report


def record(name: str, message: str) -> None:
    """Add a failure to the file of `.ci/run`, if it runs the tests."""
    if folder := os.environ.get("CI_RESULTS"):
        lines = message.splitlines()
        left_out = [f"… {len(lines) - _MESSAGE_LINES} more lines"][: len(lines) > _MESSAGE_LINES]
        text = "\n".join(f"    {line}" for line in [*lines[:_MESSAGE_LINES], *left_out])
        with (Path(folder) / "failures").open("a") as file:
            file.write(f"{name}\n{text}\n")


def _message(report: pytest.TestReport | pytest.CollectReport) -> str:
    crash = getattr(report.longrepr, "reprcrash", None)
    return f"{crash.message}\nat {crash.path}:{crash.lineno}" if crash else str(report.longrepr)


class _Recorder:
    """Not in the workers: a worker that crashed reports nothing."""

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            where = "" if report.when == "call" else f" ({report.when})"
            record(f"FAILED {report.nodeid}{where}", _message(report))

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            record(f"ERROR {report.nodeid}", _message(report))

    def pytest_internalerror(self, excrepr: object) -> None:
        """An error outside of a test, also of a worker: its last lines name the cause."""
        record("ERROR of pytest", "\n".join(str(excrepr).splitlines()[-_MESSAGE_LINES:]))


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(_Recorder(), "failures-for-ci")
