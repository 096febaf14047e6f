"""The part of the results that is compared, by the positions of their input records. Pure.

Both outputs are cut at the same input records, not at the times at which their queries have written
the results: a result is compared in both outputs or in none.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from job.plan.result_id import Place

Offsets = Mapping[tuple[str, int], int]
"""An offset per topic and partition."""


@dataclass(frozen=True)
class Span:
    starts: Offsets | None = None
    """First input record of each partition. None: the beginning."""
    ends: Offsets | None = None
    """Input record of each partition before which the span ends. None: it has no end."""

    def contains(self, places: Iterable[Place]) -> bool:
        """Whether all records of a result are in the span."""
        return all(self._contains(place) for place in places)

    def _contains(self, place: Place) -> bool:
        # A partition without an entry was added after the offsets were requested.
        partition = (place.topic, place.partition)
        is_after_start = self.starts is None or place.offset >= self.starts.get(partition, 0)
        return is_after_start and (self.ends is None or place.offset < self.ends.get(partition, 0))
