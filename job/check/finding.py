"""One sentence of `streamjoin check`."""

from dataclasses import dataclass
from typing import Literal

Level = Literal["problem", "warning", "info"]


@dataclass(frozen=True)
class Finding:
    level: Level
    """problem: the start would be refused, or no record can be read."""
    about: str
    """Topic, or what else the sentence is about."""
    text: str
    """With the remedy, unless it is an info."""


def problem(about: str, text: str) -> Finding:
    return Finding("problem", about, text)


def warning(about: str, text: str) -> Finding:
    return Finding("warning", about, text)


def info(about: str, text: str) -> Finding:
    return Finding("info", about, text)
