"""With EVERY_TEST in the environment a skipped test fails."""

import gc
import os
from collections.abc import Generator, Iterator

import pytest

from tests.integration.jvms import SharedJvm
from tests.wheel import InstalledWheel, install_wheel


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> InstalledWheel:
    """The wheel of the project, in a virtual environment."""
    return install_wheel(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="session")
def jvm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SharedJvm]:
    """For the jobs of a worker that run one after another; see CONTRIBUTING.md."""
    with SharedJvm(tmp_path_factory.mktemp("jvm")) as shared:
        yield shared


def pytest_collection_finish() -> None:
    """Exclude the thousands of collected tests from Python's garbage collections."""
    gc.collect()
    gc.freeze()


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
