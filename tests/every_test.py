"""With EVERY_TEST in the environment a skipped test fails."""

import os
from collections.abc import Generator

import pytest


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
    call: pytest.CallInfo[None],  # noqa: ARG001  # pytest passes hook arguments by name
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if "EVERY_TEST" in os.environ and report.skipped and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        report.longrepr = f"{item.nodeid} was skipped, but EVERY_TEST is set: {report.longrepr}"
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """A module that skips itself, as by `pytest.importorskip`."""
    report = yield
    if "EVERY_TEST" in os.environ and report.skipped:
        report.outcome = "failed"
        report.longrepr = (
            f"{collector.nodeid} was skipped, but EVERY_TEST is set: {report.longrepr}"
        )
    return report
