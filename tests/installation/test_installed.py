"""The wheel in an empty virtual environment: `streamjoin setup` makes every command work."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from job.installation.java import java_home
from tests.wheel import ROOT

UV = str(ROOT / ".tools" / "bin" / "uv")
SPEC = """
name: orders
kafka: {bootstrap_servers: "localhost:9092"}
left:
  topic: orders
  schema: id BIGINT, at TIMESTAMP
  key: [id]
  event_time: at
  watermark_delay: 1 second
right:
  topic: payments
  schema: id BIGINT, at TIMESTAMP
  key: [id]
  event_time: at
  watermark_delay: 1 second
join: {type: inner, match_window: {before: 0 seconds, after: 1 minute}}
output: {topic: paid, key: id, columns: {id: left.id}}
checkpoint: ./checkpoint
on_bad_record: drop
"""
ROW = '{"id": 7, "at": "2026-03-01T10:00:00Z"}\n'


class Installation(NamedTuple):
    folder: Path
    """The working folder."""
    programs: Path
    cache: Path

    def run(self, *words: str, jars: Path | None = None) -> subprocess.CompletedProcess[str]:
        environment = {
            "HOME": str(self.folder),
            "XDG_CACHE_HOME": str(self.cache),
            "JAVA_HOME": str(java_home()),
            "PATH": os.environ["PATH"],
            **({} if jars is None else {"STREAMJOIN_JARS": str(jars)}),
        }
        return subprocess.run(
            [self.programs / "streamjoin", *words],
            cwd=self.folder,
            env=environment,
            capture_output=True,
            text=True,
            timeout=180,
            check=False,
        )

    def output(self, *words: str) -> str:
        done = self.run(*words)
        assert 0 == done.returncode, done.stdout + done.stderr
        return done.stdout

    def refusal(self, *words: str, jars: Path | None = None) -> str:
        done = self.run(*words, jars=jars)
        assert 1 == done.returncode, done.stdout + done.stderr
        assert "Traceback" not in done.stderr
        return done.stderr

    @property
    def jars(self) -> Path:
        (folder,) = self.cache.glob("*/*/spark")
        return folder


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installation]:
    """Not set up yet. The packages are those of uv.lock, which `make setup` has left in uv's
    cache."""
    folder = tmp_path_factory.mktemp("installation")
    built, environment, packages = folder / "built", folder / "venv", folder / "packages.txt"
    run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(built))
    (wheel,) = built.glob("*.whl")
    run(UV, "venv", "--quiet", "--python", sys.executable, str(environment))
    export = ("export", "--quiet", "--frozen", "--no-dev", "--extra", "job", "--no-emit-project")
    run(UV, *export, "--output-file", str(packages))
    install = (UV, "pip", "install", "--quiet", "--python", str(environment / "bin" / "python"))
    run(*install, "--no-deps", "--requirements", str(packages))
    run(*install, "--no-deps", f"streamjoin[job] @ {wheel.as_uri()}")
    working = folder / "working"
    working.mkdir()
    (working / "join.yaml").write_text(SPEC)
    (working / "rows.jsonl").write_text(ROW)
    yield Installation(working, environment / "bin", folder / "cache")
    shutil.rmtree(environment)  # 800 MB


def run(*command: str) -> None:
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert 0 == done.returncode, done.stdout + done.stderr


@pytest.fixture(scope="module")
def set_up(installed: Installation) -> Installation:
    # `make setup` also creates a class archive, with the same code.
    options = ("--from", str(ROOT / ".jars"), "--no-class-archive")
    assert "5 new" in installed.output("setup", *options)
    return installed


def test_command_without_set_up_names_the_command(installed: Installation) -> None:
    assert "does not exist. Run `streamjoin setup`" in installed.refusal("run", "join.yaml")


def test_set_up_makes_commands_work_in_an_empty_folder(set_up: Installation) -> None:
    files = ("--left", "rows.jsonl", "--right", "rows.jsonl")

    assert "join.yaml is valid\n" == set_up.output("validate", "join.yaml")
    assert "inner join" in set_up.output("plan", "join.yaml")
    results = set_up.output("simulate", "join.yaml", *files, "--format", "jsonl")
    assert '{"id":7}\n' == results


def test_cache_is_private(set_up: Installation) -> None:
    folders = (set_up.jars, set_up.jars.parent, set_up.jars.parent.parent)

    assert {0o700} == {folder.stat().st_mode & 0o777 for folder in folders}


def test_changed_jar_and_folder_that_others_can_write_are_refused(set_up: Installation) -> None:
    set_up.jars.chmod(0o777)
    assert "other users can write" in set_up.refusal("run", "join.yaml")
    set_up.jars.chmod(0o700)

    jar = next(set_up.jars.glob("kafka-clients-*.jar"))
    content = jar.read_bytes()
    jar.write_bytes(content + b"more")
    refusal = set_up.refusal("run", "join.yaml")
    jar.write_bytes(content)
    assert "this version pins" in refusal
    assert "Run `streamjoin setup`" in refusal
