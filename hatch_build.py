"""Builds the wheel: `job` and `service` become `streamjoin.job` and `streamjoin.service`.

Users install the wheel next to their own packages, where top-level packages of such general
names could hide others. In a checkout and in an editable installation they keep their short names.

The hook copies the packages and rewrites their absolute imports, as pip does for the packages that
it vendors. No other text is rewritten: code that needs the name of a module as text reads it from
the module. The wheel also has jars.toml and the compiled classes of the job, for `streamjoin
setup`. tests/unit/project/test_wheel.py imports every module of the installed wheel.
"""

import re
import runpy
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PACKAGES = {"job": "streamjoin/job", "service": "streamjoin/service", "streamjoin": "streamjoin"}
"""Folders with their places in the wheel."""

JAVA_JAR = ".jars/spark/streamjoin/streamjoin.jar"
"""The compiled Java classes, from `make setup`."""
FILES = {"jars.toml": "streamjoin/jars.toml", JAVA_JAR: "streamjoin/streamjoin.jar"}

_IMPORT = re.compile(r"^(\s*from )((?:job|service)[.\w]* import )", re.MULTILINE)


class WheelHook(BuildHookInterface[Any]):
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "editable":
            return
        self._check_classes()
        for file, place in FILES.items():
            build_data["force_include"][str(Path(self.root) / file)] = place
        self._copies = tempfile.TemporaryDirectory(prefix="streamjoin-")
        for package, place in PACKAGES.items():
            for source in _files(Path(self.root) / package):
                target = Path(place) / source.relative_to(Path(self.root) / package)
                copy = Path(self._copies.name) / target
                copy.parent.mkdir(parents=True, exist_ok=True)
                copy.write_bytes(_content(source))
                build_data["force_include"][str(copy)] = str(target)

    def _check_classes(self) -> None:
        """The jar must be of these sources: users have no compiler for it."""
        of_jar = runpy.run_path(str(Path(self.root) / "job" / "java_jar.py"))
        built_from = of_jar["checksum_in"](Path(self.root) / JAVA_JAR)
        if built_from != of_jar["sources_checksum"]():
            raise RuntimeError(
                f"{JAVA_JAR} is missing, or was built from other sources: run `make setup`, and "
                "then build the wheel"
            )

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        del build_data, artifact_path
        if version != "editable":
            self._copies.cleanup()


def _files(package: Path) -> list[Path]:
    files = (path for path in package.rglob("*") if path.is_file())
    return sorted(path for path in files if path.parent.name != "__pycache__")


def _content(source: Path) -> bytes:
    if source.suffix != ".py":
        return source.read_bytes()
    return _IMPORT.sub(r"\1streamjoin.\2", source.read_text(encoding="utf-8")).encode()
