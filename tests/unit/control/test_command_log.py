"""The last commands, in the status and with the checkpoint."""

import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from job.checkpoint.commands import COMMANDS_MAX
from job.control.command_log import CommandLog
from job.protocol.calls import Pause, Resume, Stop
from tests.unit.checkpoint.folders import DocumentFolder


def verbs(log: CommandLog) -> list[str]:
    return [command.verb for command in log.last]


def test_commands_of_an_earlier_run_come_before_those_of_this_one() -> None:
    folder = DocumentFolder()
    earlier = CommandLog()
    earlier.add(Pause(by="ada", reason="maintenance of\nthe brokers\x1b[2J"))
    earlier.store(folder)

    log = CommandLog()
    log.add(Resume(by="bob"))
    log.store(folder)
    log.add(Stop(by="bob"))
    log.store(folder)

    assert ["pause", "resume", "stop"] == verbs(log)
    first, _, last = folder.documents["commands.json"]["commands"]
    assert ("ada", "maintenance of the brokers [2J") == (first["by"], first["reason"])
    assert ("stop", "bob", None) == (last["verb"], last["by"], last["reason"])


def test_commands_follow_the_query_to_its_next_checkpoint_and_only_the_newest_are_kept() -> None:
    old, new = DocumentFolder(), DocumentFolder()
    new.root = "file:/next"
    log = CommandLog()
    for _ in range(COMMANDS_MAX):
        log.add(Pause())
    log.store(old)
    log.add(Stop())
    log.store(new)

    assert ["stop"] == verbs(log)[-1:]
    assert COMMANDS_MAX == len(new.documents["commands.json"]["commands"]) == len(log.last)


def test_unchanged_commands_are_not_written_again() -> None:
    written: list[str] = []

    class Folder(DocumentFolder):
        def write(self, name: str, text: str) -> None:
            written.append(name)
            super().write(name, text)

    folder, log = Folder(), CommandLog()
    log.store(folder)
    assert [] == written
    log.add(Pause())
    log.store(folder)
    log.store(folder)
    assert ["commands.json"] == written


@pytest.mark.parametrize("document", [{"format": 2}, {"format": 1, "commands": [{}]}, []])
def test_unreadable_commands_do_not_prevent_a_start(document: Any) -> None:
    log = CommandLog()
    log.store(DocumentFolder({"commands.json": document}))
    assert [] == log.last


def test_commands_of_a_checkpoint_on_this_machine_are_known_before_the_jvm_has_started(
    tmp_path: Path,
) -> None:
    command = {"verb": "stop", "by": "ada", "at": "2026-11-20T12:00:00Z"}
    document = json.dumps({"format": 1, "commands": [command]})
    (tmp_path / "commands.json").write_text(document)

    log = CommandLog.of(str(tmp_path))

    assert ["stop"] == verbs(log)
    log.store(DocumentFolder({"commands.json": json.loads(document)}))
    assert ["stop"] == verbs(log)
    (tmp_path / "commands.json").write_bytes(b"\xff")
    assert [] == verbs(CommandLog.of(str(tmp_path)))
    assert [] == verbs(CommandLog.of("s3a://bucket/join"))


def test_long_reason_is_refused() -> None:
    with pytest.raises(ValidationError, match="at most 300 characters"):
        Pause(reason="x" * 301)
