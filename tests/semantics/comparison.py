"""Result of comparing `validate` with Spark."""

from collections import Counter
from dataclasses import dataclass, field


@dataclass
class Result:
    """Counts of texts by outcome, and the differences."""

    counts: Counter[str] = field(default_factory=Counter)
    differences: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        counted = ", ".join(f"{count} {name}" for name, count in sorted(self.counts.items()))
        shown = "\n".join(self.differences)
        return f"{counted}; {len(self.differences)} differences\n{shown}".strip()
