"""tests/every_test.py: with EVERY_TEST in the environment no test may be skipped."""

from pathlib import Path

import pytest

pytest_plugins = ["pytester"]

PLUGIN = Path(__file__).parents[2] / "every_test.py"
MODULE = """
import pytest

@pytest.mark.skip(reason="marked")
def test_marked(): pass

def test_that_skips_itself(): pytest.skip("called")

@pytest.fixture
def missing(): pytest.skip("not installed")

def test_with_a_fixture_that_skips(missing): pass

@pytest.mark.xfail(reason="known")
def test_known_defect(): assert False

def test_that_passes(): pass
"""
SKIPPED_MODULE = "import pytest; pytest.skip('whole module', allow_module_level=True)"


@pytest.mark.parametrize(
    ("every_test", "outcomes"),
    [
        (False, {"passed": 1, "xfailed": 1, "skipped": 4}),
        (True, {"passed": 1, "xfailed": 1, "failed": 1, "errors": 3}),
    ],
    ids=["may skip", "every test"],
)
def test_skipped_test_fails_where_every_test_has_to_run(
    every_test: bool,
    outcomes: dict[str, int],
    pytester: pytest.Pytester,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("EVERY_TEST", raising=False)
    if every_test:
        monkeypatch.setenv("EVERY_TEST", "yes")
    pytester.makeconftest(PLUGIN.read_text())
    pytester.makepyfile(test_skips=MODULE, test_module=SKIPPED_MODULE)

    result = pytester.runpytest_inprocess("--continue-on-collection-errors")
    assert outcomes == result.parseoutcomes()
