"""Calls of every command with wrong files, options, variables and standard streams.

The commands, their arguments and their options are read from the typer app.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, get_origin

import typer

from job.__main__ import app
from job.settings import JobSettings
from tests.unit.specs import spec_yaml

Stream = Literal["normal", "closed", "full", "no reader"]

# Nothing listens on these ports.
BROKER = "localhost:1"
REGISTRY = {"url": "http://localhost:1"}

_SHARED_BY_MAX = 4
_TEXTS = ("", "-1", "9" * 400, "x" * 100_000, "\udcff", "left.a'\"${X}")
_OTHER_SPECS = {
    "no broker": {},
    "avro": {"output__format": "avro", "schema_registry": REGISTRY},
    "real time": {"engine": "real_time", "output__delivery": "exactly_once"},
    "broker name": {"kafka__bootstrap_servers": "no-such-host.invalid:9092"},
    "missing secret": {
        "kafka__security": {
            "protocol": "SASL_SSL",
            "mechanism": "PLAIN",
            "username": "joe",
            "password_file": "/nonexistent",
        }
    },
}


@dataclass(frozen=True)
class Call:
    arguments: tuple[str, ...]
    what: str = "valid arguments"
    stdin: Stream = "normal"
    stdout: Stream = "normal"
    environment: dict[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.what}: {' '.join(argument[:40] for argument in self.arguments)}"


def commands() -> Iterator[tuple[tuple[str, ...], list[Any]]]:
    """The names and the parameters of each command."""
    yield from _commands(typer.main.get_command(app), ())


def _commands(command: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], list[Any]]]:
    subcommands = getattr(command, "commands", None)
    if subcommands is None:
        yield path, command.params
        return
    for name, subcommand in subcommands.items():
        yield from _commands(subcommand, (*path, name))


def calls(folder: Path) -> Iterator[Call]:
    """`folder`: an empty folder for the files of the calls."""
    files, turns = _Files(folder), _Turns()
    for names, parameters in commands():
        yield from _calls_of_command(names, parameters, files, turns)
    valid = str(files.spec)
    for name in JobSettings.model_fields:
        variable = f"STREAMJOIN_{name.upper()}"
        for text in _TEXTS:
            yield Call(("run", valid), f"{variable}={text[:20]}", environment={variable: text})
    yield Call(("no-such-command",))


class _Turns:
    """A command is called with all wrong values of a parameter that only this command declares, and
    with every second to fourth value of one that others declare, too. Together these commands are
    called with all values."""

    def __init__(self) -> None:
        self._commands = Counter(
            _declaration(parameter) for _, parameters in commands() for parameter in parameters
        )
        self._turns: Counter[tuple[str, str]] = Counter()

    def of(self, parameter: Any) -> Callable[[int], bool]:
        declaration = _declaration(parameter)
        every = min(self._commands[declaration], _SHARED_BY_MAX)
        turn = self._turns[declaration]
        self._turns[declaration] += 1
        return lambda number: number % every == turn % every


def _declaration(parameter: Any) -> tuple[str, str]:
    return parameter.name, str(_annotation(parameter))


def _calls_of_command(
    names: tuple[str, ...], parameters: list[Any], files: "_Files", turns: _Turns
) -> Iterator[Call]:
    required = {
        parameter: files.valid(names, parameter) for parameter in parameters if parameter.required
    }
    valid = Call(_line(names, required))
    yield valid
    for stream in ("closed", "full", "no reader"):
        yield replace(valid, what=f"stdout {stream}", stdout=stream)
    yield replace(valid, what="stdin closed", stdin="closed")
    for parameter in parameters:
        is_turn = turns.of(parameter)
        for number, (what, text) in enumerate(files.hostile(parameter)):
            if is_turn(number):
                line = _line(names, {**required, parameter: text})
                yield Call(line, f"{parameter.name} {what}")


def _line(names: tuple[str, ...], values: dict[Any, str | None]) -> tuple[str, ...]:
    options: list[str] = []
    arguments: list[str] = []
    for parameter, text in values.items():
        if parameter.param_type_name == "argument":
            arguments.append(text or "")
        else:
            options += [parameter.opts[0]] if text is None else [parameter.opts[0], text]
    return (*names, *options, "--", *arguments) if arguments else (*names, *options)


class _Files:
    """The files of the calls, each a valid or a wrong value of a parameter of type Path."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.spec = self._written("valid.yaml", _spec())
        self._rows = self._written("rows.jsonl", '{"ad_id": 1, "shown_at": 1, "clicked_at": 2}\n')
        self._hostile = dict(self._hostile_files())

    def valid(self, names: tuple[str, ...], parameter: Any) -> str:
        if _annotation(parameter) is not Path or names == ("init",):
            return str(self._folder / "target")
        if parameter.name in {"left", "right"}:
            return str(self._rows)
        return str(self.spec)

    def hostile(self, parameter: Any) -> Iterator[tuple[str, str | None]]:
        kind = _annotation(parameter)
        if kind is bool:
            yield "set", None
        elif kind is Path:
            for what, path in self._hostile.items():
                yield what, str(path)
        elif get_origin(kind) is Literal:
            yield from ((f"{text[:20]!r}", text) for text in ("", "no such word"))
        else:
            yield from ((f"{text[:20]!r}", text) for text in _TEXTS)

    def _hostile_files(self) -> Iterator[tuple[str, Path]]:
        folder = self._folder
        yield "missing", folder / "missing.yaml"
        yield "missing folder", folder / "missing" / "spec.yaml"
        yield "below a file", self.spec / "spec.yaml"
        yield "folder", folder
        yield "long name", folder / ("x" * 300)
        yield "name that is not UTF-8", self._written("\udcff.yaml", _spec())
        yield "unreadable", self._written("unreadable.yaml", _spec(), mode=0)
        locked = folder / "locked"
        locked.mkdir()
        yield "in an unreadable folder", self._written("locked/spec.yaml", _spec())
        locked.chmod(0)
        loop = folder / "loop"
        loop.symlink_to(loop)
        yield "symbolic link to itself", loop
        for device in ("/dev/null", "/proc/self/mem", "/proc/new.yaml"):
            yield device, Path(device)
        contents: dict[str, bytes] = {
            "binary": bytes(range(256)),
            "UTF-16": _spec().encode("utf-16"),
            "deep": b"[" * 20_000,
            "large numbers": b'{"ad_id": 1e999999999999999999999, "shown_at": -9e18, "a": 0.5}',
        }
        for what, content in contents.items():
            yield what, self._written(f"{what}.yaml", content)
        for what, changes in _OTHER_SPECS.items():
            yield what, self._written(f"{what}.yaml", _spec(**changes))

    def _written(self, name: str, content: str | bytes, mode: int = 0o644) -> Path:
        path = self._folder / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        path.chmod(mode)
        return path


def _annotation(parameter: Any) -> Any:
    return parameter.type_descriptor.annotation


def _spec(**changes: Any) -> str:
    base: dict[str, Any] = {
        "kafka__bootstrap_servers": BROKER,
        "dead_letter": {"topic": "dead"},
        "on_bad_record": None,
        "checkpoint": "./no-checkpoint",
        "tests": [{"name": "é≤\U0001f600", "left": [], "right": [], "output": []}],
    }
    return spec_yaml(**{**base, **changes})
