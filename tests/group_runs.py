"""`pytest -p tests.group_runs --groups …`: leaves out the groups of tests/groups.py that have not
changed, and records those that passed.

Not in tests/conftest.py: the lists of tests/groups.py would be inputs of each group.
"""

from pathlib import Path
from typing import Any

import pytest

from tests.groups import GROUPS, LOCK, ROOT, has_changed, input_hash, record


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--groups",
        choices=("changed", "selected", "all"),
        help="changed: leave out the groups of tests/groups.py whose inputs have not changed since "
        "they last passed; selected: run all selected tests; all: and record the groups that pass",
    )


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("groups") and not hasattr(config, "workerinput"):
        config.pluginmanager.register(GroupRuns(config), "group-runs")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    runs = config.pluginmanager.get_plugin("group-runs")
    left_out = set(
        runs.left_out if runs else getattr(config, "workerinput", {}).get("left_out", ())
    )
    deselected = [item for item in items if left_out & {*_groups_of(item.nodeid)}]
    if deselected:
        config.hook.pytest_deselected(items=deselected)
        items[:] = [item for item in items if item not in deselected]


class GroupRuns:
    """Not in the workers."""

    def __init__(self, config: pytest.Config) -> None:
        self._mode = config.getoption("groups")
        self._passed: set[str] = set()
        self._bad: set[str] = set()
        folders = [Path(argument.partition("::")[0]).resolve() for argument in config.args]
        self.left_out = [
            name
            for name in GROUPS
            if self._mode == "changed"
            and any(map(_contains(name), folders))
            and not has_changed(name)
        ]
        options = config.option
        self._is_partial = bool(
            options.keyword
            or options.markexpr
            or options.deselect
            or options.lf
            or any("::" in argument for argument in config.args)
            or any(map(_is_inside_a_group, folders))
        )

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        """A worker is about to start."""
        node.workerinput["left_out"] = self.left_out

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._note(report)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        self._note(report)

    def _note(self, report: Any) -> None:
        for name in _groups_of(report.nodeid):
            if not report.passed:
                self._bad.add(name)
            elif getattr(report, "when", None) == "call":
                self._passed.add(name)

    def pytest_terminal_summary(
        self, terminalreporter: pytest.TerminalReporter, exitstatus: int
    ) -> None:
        lines = [
            f"{name}: not run, its inputs have not changed since it passed (make test-all runs it)"
            for name in self.left_out
        ]
        ended = exitstatus in {pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED}
        for name in sorted(self._passed - self._bad) if ended and not self._is_partial else ():
            if self._mode == "all":
                record(name)
                lines.append(f"{name}: passed, recorded in {LOCK}")
            else:
                line = f"{name} {input_hash(GROUPS[name])}"
                lines.append(f"{name}: passed; it is left out once {LOCK} has the line: {line}")
        if lines:
            terminalreporter.section("groups")
        for line in lines:
            terminalreporter.write_line(line)


def _groups_of(nodeid: str) -> list[str]:
    path = ROOT / nodeid.partition("::")[0]
    return [
        name
        for name, group in GROUPS.items()
        if any(path.is_relative_to(ROOT / tests) for tests in group.tests)
    ]


def _is_inside_a_group(path: Path) -> bool:
    """Whether the path has only some of the tests of a group."""
    groups = (ROOT / tests for group in GROUPS.values() for tests in group.tests)
    return any(path != tests and path.is_relative_to(tests) for tests in groups)


def _contains(name: str) -> Any:
    tests = [ROOT / path for path in GROUPS[name].tests]
    return lambda folder: any(path.is_relative_to(folder) for path in tests)
