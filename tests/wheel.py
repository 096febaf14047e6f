"""The wheel of the project, installed into a virtual environment outside of the checkout."""

import subprocess
import sys
import sysconfig
import venv
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]


class InstalledWheel(NamedTuple):
    file: Path
    environment: Path
    """Virtual environment. It sees the packages of the tests' environment, but neither the checkout
    nor its editable installation."""

    def program(self, name: str) -> str:
        """Path of `python`, or of a program that the wheel installs."""
        return str(self.environment / "bin" / name)


def install_wheel(folder: Path) -> InstalledWheel:
    """Build the wheel and install it, below `folder`."""
    _run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder))
    (wheel,) = folder.glob("*.whl")
    environment = folder / "venv"
    venv.create(environment)
    python = str(environment / "bin" / "python")
    uv = str(ROOT / ".tools" / "bin" / "uv")
    _run(uv, "pip", "install", "--offline", "--no-deps", "--python", python, str(wheel))
    # Python reads no .pth files in a folder that a .pth file adds: they lead to the checkout.
    (packages,) = environment.glob("lib/python*/site-packages")
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib"))
    return InstalledWheel(wheel, environment)


def _run(*command: str) -> None:
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert 0 == done.returncode, done.stdout + done.stderr
