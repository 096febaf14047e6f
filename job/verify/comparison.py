"""What a verification finds. Values only."""

from collections import Counter
from dataclasses import dataclass, field
from enum import StrEnum

from job.plan.result_id import Place

SHOWN_MAX = 10


class Difference(StrEnum):
    MISSING = "missing"
    UNEXPLAINED = "unexplained"
    """The specification does not give the result."""
    DIFFERENT = "different"
    """The result has another key or value."""
    DUPLICATE = "duplicates"
    """Records with the id of an earlier one."""


class NotChecked(StrEnum):
    """Why a result, or an expected result that is not in the output, is not checked."""

    WITHOUT_ID = "without_id"
    RECORD_NOT_READ = "record_not_read"
    MATCH_NOT_READ = "match_not_read"
    LATE_OR_DUPLICATE = "late_or_duplicate"
    BEFORE_CHANGE = "before_change"
    NOT_EMITTED_YET = "not_emitted_yet"
    MAY_BE_REMOVED = "may_be_removed"
    MAY_BE_TOO_LARGE = "may_be_too_large"


@dataclass(frozen=True)
class Shown:
    id: str
    reason: str
    at: Place | None
    """None: the result is not in the output topic."""


@dataclass
class Comparison:
    allows_duplicates: bool = False
    """Whether the delivery is at least once."""
    agree: int = 0
    differences: Counter[Difference] = field(default_factory=Counter)
    shown: dict[Difference, list[Shown]] = field(
        default_factory=lambda: {kind: [] for kind in Difference}
    )
    """The first differences of each kind."""
    latencies_ms: list[int] = field(default_factory=list)
    """Of results of two records that agree: Kafka's timestamp minus that of the later record."""
    results_not_checked: Counter[NotChecked] = field(default_factory=Counter)
    expected_not_checked: Counter[NotChecked] = field(default_factory=Counter)

    @property
    def agrees(self) -> bool:
        allowed = {Difference.DUPLICATE} if self.allows_duplicates else set()
        return not self.differences.keys() - allowed

    def add(self, kind: Difference, shown: Shown) -> None:
        self.differences[kind] += 1
        if len(self.shown[kind]) < SHOWN_MAX:
            self.shown[kind].append(shown)
