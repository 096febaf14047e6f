"""Text and JSON of a verification. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import quantiles
from typing import Any

from job.verify.comparison import Comparison, Difference, NotChecked

_WORDS = {
    Difference.MISSING: "missing",
    Difference.UNEXPLAINED: "not given by the specification",
    Difference.DIFFERENT: "with another key or value",
    Difference.DUPLICATE: "duplicates",
}
_LATENCIES_MIN = 2
_REASONS = {
    NotChecked.WITHOUT_ID: "without streamjoin-id",
    NotChecked.RECORD_NOT_READ: "one of its records was not read",
    NotChecked.MATCH_NOT_READ: "a match of its record may not have been read",
    NotChecked.LATE_OR_DUPLICATE: "a row may have been late, or a duplicate",
    NotChecked.BEFORE_CHANGE: "one of its records was read before a change of join or filters",
    NotChecked.NOT_EMITTED_YET: "the query may emit it later",
    NotChecked.MAY_BE_REMOVED: "Kafka may have removed it, or an open transaction hides it",
    NotChecked.MAY_BE_TOO_LARGE: "it may be larger than the topic accepts",
}


@dataclass(frozen=True)
class Report:
    comparison: Comparison
    read: Sequence[str]
    """How far the topics were read."""

    @property
    def passes(self) -> bool:
        """Whether results were checked, and are those of the specification."""
        return self.comparison.agrees and self.comparison.agree > 0

    @property
    def text(self) -> str:
        return "\n".join(self._lines())

    @property
    def as_json(self) -> dict[str, Any]:
        found = self.comparison
        return {
            "agrees": found.agrees,
            "passes": self.passes,
            "read": list(self.read),
            "counts": {"agree": found.agree, **{kind: found.differences[kind] for kind in _WORDS}},
            "latency_ms": self._latency,
            "not_checked": {
                "results": dict(found.results_not_checked),
                "expected": dict(found.expected_not_checked),
            },
            "shown": {
                kind: [
                    {
                        "id": each.id,
                        "at": None if each.at is None else str(each.at),
                        "reason": each.reason,
                    }
                    for each in shown
                ]
                for kind, shown in found.shown.items()
            },
        }

    def _lines(self) -> Iterator[str]:
        found = self.comparison
        yield from self.read
        width = max(map(len, _WORDS.values()))
        yield f"\n  {'as the specification gives':{width}} {found.agree:>12,}"
        for kind, words in _WORDS.items():
            is_allowed = kind is Difference.DUPLICATE and found.allows_duplicates
            note = " (no difference: delivery is at_least_once)" if is_allowed else ""
            yield f"  {words:{width}} {found.differences[kind]:>12,}{note}"
        if (latency := self._latency) is not None:
            yield (
                f"\nLatency of {len(found.latencies_ms):,} results of two records, by the Kafka "
                f"timestamps of result and later record: p50 {latency['p50']:,} ms, p99 "
                f"{latency['p99']:,} ms"
            )
        yield from _not_checked("Results that were not checked", found.results_not_checked)
        title = "Expected results that are not in the output, and not checked"
        yield from _not_checked(title, found.expected_not_checked)
        for kind, shown in found.shown.items():
            if shown:
                yield f"\n{_WORDS[kind].capitalize()}:"
            for each in shown:
                at = "" if each.at is None else f" at {each.at}"
                yield f"  {each.id}{at}: {each.reason}"
        yield f"\n{self._conclusion}"

    @property
    def _latency(self) -> dict[str, int] | None:
        """None: no result has two known timestamps."""
        known = self.comparison.latencies_ms
        if len(known) < _LATENCIES_MIN:
            return None
        cuts = quantiles(known, n=100, method="inclusive")
        return {"p50": round(cuts[49]), "p99": round(cuts[98])}

    @property
    def _conclusion(self) -> str:
        found = self.comparison
        if not found.agrees:
            return "The output differs from the specification."
        if not found.agree:
            return "No results were checked."
        return "All results that were checked are those of the specification."


def _not_checked(title: str, counts: Mapping[NotChecked, int]) -> Iterator[str]:
    if counts:
        yield f"\n{title}:"
        yield from (f"  {count:>12,}  {_REASONS[reason]}" for reason, count in counts.items())
