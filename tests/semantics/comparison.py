"""What comparing `validate` with Spark finds."""

from collections import Counter
from dataclasses import dataclass, field


@dataclass
class Result:
    """How many texts were accepted and refused by both, and what differs."""

    counts: Counter[str] = field(default_factory=Counter)
    differences: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        counted = ", ".join(f"{count} {name}" for name, count in sorted(self.counts.items()))
        shown = "\n".join(self.differences)
        return f"{counted}; {len(self.differences)} differences\n{shown}".strip()
