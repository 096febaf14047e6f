"""For the tests of all levels. It imports no module of the product, so that groups of tests
(tests/groups.py) depend only on what they import themselves."""

import gc
from collections.abc import Iterator

import pytest
import structlog
from hypothesis import settings

from tests.wheel import InstalledWheel, install_wheel

# The limit of an example, 200 ms by default, says nothing while other tests share the cores.
settings.register_profile("without_deadline", settings(), deadline=None)
settings.load_profile("without_deadline")

pytest_plugins = [
    "tests.cpu_time",
    "tests.every_test",
    "tests.failures",
    "tests.hangs",
]


@pytest.fixture(autouse=True)
def _log_as_before() -> Iterator[None]:
    """A command sets the log of its process, and some tests run commands in their process."""
    before = structlog.get_config()
    yield
    structlog.configure(**before)


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> InstalledWheel:
    """The wheel of the project, in a virtual environment."""
    return install_wheel(tmp_path_factory.mktemp("wheel"))


def pytest_collection_finish() -> None:
    """Exclude the thousands of collected tests from Python's garbage collections."""
    gc.collect()
    gc.freeze()
