"""The wheel installs one top-level package, whose programs run without the checkout."""

import subprocess
import zipfile
from pathlib import Path

import pytest

from job.installation.jars import jar_folder
from job.installation.java import java_home
from tests.wheel import ROOT, InstalledWheel

pytestmark = pytest.mark.processes

SPEC = str(ROOT / "join.example.yaml")
IMPORT_ALL = """
import pkgutil, sys
from importlib import import_module
import streamjoin

for module in pkgutil.walk_packages(streamjoin.__path__, "streamjoin."):
    import_module(module.name)
    print(module.name)
assert not {"job", "service"} & set(sys.modules)
"""


def run(folder: Path, *command: str) -> str:
    """Output of a command that must succeed. `folder`: outside of the checkout."""
    environment = {"STREAMJOIN_JARS": str(jar_folder("spark")), "JAVA_HOME": str(java_home())}
    done = subprocess.run(
        command,
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert 0 == done.returncode, done.stdout + done.stderr
    return done.stdout


def files_of(package: str) -> set[str]:
    folder = ROOT / package
    return {
        str(path.relative_to(ROOT))
        for path in folder.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


def test_wheel_contains_every_file_below_one_top_level_package(wheel: InstalledWheel) -> None:
    names = set(zipfile.ZipFile(wheel.file).namelist())

    installed = {name for name in names if ".dist-info/" not in name}
    moved = {f"streamjoin/{name}" for name in files_of("job") | files_of("service")}
    set_up = {"streamjoin/jars.toml", "streamjoin/streamjoin.jar"}
    assert files_of("streamjoin") | moved | set_up == installed


def test_every_module_is_imported_by_its_name_in_the_wheel(
    wheel: InstalledWheel, tmp_path: Path
) -> None:
    imported = run(tmp_path, wheel.program("python"), "-c", IMPORT_ALL).splitlines()

    assert {
        "streamjoin.job.__main__",
        "streamjoin.job.join.processor",
        "streamjoin.service.app",
        "streamjoin.testing.plugin",
    } <= set(imported)


def test_commands_run_outside_of_the_checkout(wheel: InstalledWheel, tmp_path: Path) -> None:
    assert f"{SPEC} is valid\n" == run(tmp_path, wheel.program("streamjoin"), "validate", SPEC)
    assert "STREAMJOIN_PORT" in run(tmp_path, wheel.program("streamjoin-service"), "--help")


def test_pytest_plugin_is_loaded(wheel: InstalledWheel, tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text('pytest_plugins = ["streamjoin.testing.plugin"]\n')

    fixtures = run(tmp_path, wheel.program("python"), "-m", "pytest", "--fixtures", "-q")

    assert "start_join" in fixtures
