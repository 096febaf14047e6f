"""Programs of the operating system that some tests need and no Python package contains."""

import os
import shutil
from pathlib import Path

import pytest


def program(*names: str, package: str = "", remedy: str = "") -> Path:
    """The first of `names` that is installed; otherwise the test is skipped, with the Debian
    package or the command that installs it.

    With EVERY_TEST in the environment, as where .ci/run has installed them, it fails instead.
    """
    path = next(filter(None, map(shutil.which, names)), None)
    if path is not None:
        return Path(path)
    remedy = remedy or f"on Debian: sudo apt-get install {package}"
    reason = f"{names[0]} is not installed; {remedy}"
    if "EVERY_TEST" in os.environ:
        pytest.fail(reason)
    pytest.skip(reason)
