"""Text and JSON of a comparison. Pure."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from job.compare.results import NEWER, OUTPUTS, Comparison, Content, Kind, Shown
from job.compare.values import ContentReader

_NAMES = ("first", "second")
_WORDS = {
    Kind.ONLY_FIRST: "only in the first",
    Kind.ONLY_SECOND: "only in the second",
    Kind.DIFFERENT: "with another key or value",
    Kind.DUPLICATES_FIRST: "duplicates in the first",
    Kind.DUPLICATES_SECOND: "duplicates in the second",
    Kind.NEWER_FIRST: "newer than the end of the second",
    Kind.NEWER_SECOND: "newer than the end of the first",
}


@dataclass(frozen=True)
class OutputRead:
    """Counts of the records of an output topic."""

    topic: str
    results: int
    """Results that are compared."""
    outside: int
    """Results with an input record outside --since and --until."""
    without_id: int
    """Records without `streamjoin-id`: no query has written them."""
    key: ContentReader
    value: ContentReader


@dataclass(frozen=True)
class Report:
    outputs: tuple[OutputRead, OutputRead]
    comparison: Comparison

    @property
    def text(self) -> str:
        return "\n".join(self._lines())

    @property
    def as_json(self) -> dict[str, Any]:
        return {
            "equal": self.comparison.is_equal,
            **{name: _read(self.outputs[output]) for output, name in enumerate(_NAMES)},
            "counts": {"equal": self.comparison.equal, **self.comparison.counts},
            "shown": {
                kind: [
                    {"id": difference.id}
                    | {
                        name: _contents(difference.contents[output])
                        for output, name in enumerate(_NAMES)
                    }
                    for difference in shown
                ]
                for kind, shown in self.comparison.shown.items()
            },
        }

    def _lines(self) -> Iterator[str]:
        for output in OUTPUTS:
            yield from _lines_of_output(_NAMES[output], self.outputs[output])
        comparison = self.comparison
        width = max(map(len, _WORDS.values()))
        yield ""
        yield f"  {'equal':{width}} {comparison.equal:>12,}"
        for kind, words in _WORDS.items():
            note = " (no difference)" if kind in NEWER and comparison.counts[kind] else ""
            yield f"  {words:{width}} {comparison.counts[kind]:>12,}{note}"
        for kind, shown in comparison.shown.items():
            if shown:
                yield f"\n{_WORDS[kind].capitalize()}:"
                yield from (line for each in shown for line in _lines_of_result(each))
        yield f"\n{self._conclusion}"

    @property
    def _conclusion(self) -> str:
        if not any(output.results for output in self.outputs):
            return "No results are compared."
        return "The outputs are equal." if self.comparison.is_equal else "The outputs differ."


def _lines_of_output(name: str, read: OutputRead) -> Iterator[str]:
    yield f"{name}: {read.topic}, {read.results:,} results"
    if read.outside:
        yield f"  not compared, outside --since and --until: {read.outside:,}"
    if read.without_id:
        yield f"  not compared, without streamjoin-id: {read.without_id:,}"
    for part, reader in (("keys", read.key), ("values", read.value)):
        if reader.as_bytes:
            yield f"  {part} compared as bytes: {reader.as_bytes:,} (the first: {reader.reason})"


def _lines_of_result(shown: Shown) -> Iterator[str]:
    yield f"  {shown.id}"
    for output in OUTPUTS:
        for key, value in shown.contents[output]:
            yield f"    {_NAMES[output]}: key {key or 'null'}, value {value or 'null'}"


def _read(read: OutputRead) -> dict[str, Any]:
    return {
        "topic": read.topic,
        "results": read.results,
        "outside": read.outside,
        "without_id": read.without_id,
        **{
            part: {
                "format": reader.format,
                "as_bytes": reader.as_bytes,
                "reason": reader.reason,
            }
            for part, reader in (("key", read.key), ("value", read.value))
        },
    }


def _contents(contents: list[Content]) -> list[dict[str, str | None]]:
    return [{"key": key, "value": value} for key, value in contents]
