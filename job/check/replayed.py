"""Which dead letters would fail again, by the present spec."""

from collections.abc import Sequence

from job.check.reading import read_records, with_topics_of
from job.dead_letters.headers import DeadLetter
from job.formats.registry import registry_access
from job.plan.plan import JoinPlan
from job.semantics.input_records import InputRecord, header_texts
from job.semantics.rows import MICROS_PER_MS
from job.spec.sides import SIDES, Side
from job.sql.rows import SqlRows


class ReplayCheck:
    def __init__(self, plan: JoinPlan, rows: SqlRows) -> None:
        """Raises SecurityError if a file of schema_registry cannot be read."""
        self._plan, self._rows = plan, rows
        self._registry = registry_access(plan.schema_registry)

    def failures(self, letters: Sequence[DeadLetter]) -> list[str | None]:
        """Reason and message of each record that is bad. None: it is readable.

        Whether a row is late again is not known: that depends on the query's watermark. Raises
        RegistryError, SecurityError, or StreamjoinError if the query would fail on a record.
        """
        failing: dict[str, str] = {}
        for side in SIDES:
            own = [letter for letter in letters if letter.side == side]
            failing |= self._failing(side, own) if own else {}
        return [failing.get(letter.place) for letter in letters]

    def _failing(self, side: Side, letters: Sequence[DeadLetter]) -> dict[str, str]:
        """By place of the letter."""
        topics: dict[Side, list[str]] = {each: [] for each in SIDES}
        topics[side] = [letter.topic for letter in letters]
        plan = with_topics_of(self._plan, topics)
        records = [_record(letter) for letter in letters]
        read = read_records(plan, side, self._rows, self._registry, records)
        return {
            letter.place: f"{record.reason}: {record.message}"
            for letter, record in zip(letters, read, strict=True)
            if record.reason is not None
        }


def _record(letter: DeadLetter) -> InputRecord:
    at = letter.timestamp_ms
    return InputRecord(
        letter.value,
        letter.offset,
        letter.partition,
        key=None if letter.key is None else letter.key.decode(errors="surrogateescape"),
        timestamp_us=None if at is None else at * MICROS_PER_MS,
        topic=letter.topic,
        headers=header_texts(letter.original_headers),
    )
