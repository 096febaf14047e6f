"""The results of two outputs, compared by their ids.

The module keeps them in a file of sqlite3. The memory is that of the cache and the sorter of
sqlite3, for any number of results. The file contains the keys and values, and some 150 bytes per
record.
"""

import hashlib
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Self

from job.errors import SetupError
from job.plan.result_id import places
from job.spec.sides import Side

OUTPUTS = (0, 1)
"""The first output and the second one."""

_CACHE_KIB = 32_768
_TABLE = (
    "CREATE TABLE results "
    "(id TEXT, output INTEGER, digest BLOB, key TEXT, value TEXT, partition INTEGER, at INTEGER)"
)
_INDEX = "CREATE INDEX by_id ON results (id, output, digest)"
# The last result of each partition that the other output has too.
_LAST_COMMON = """
SELECT output, partition, max(at) FROM results AS own
WHERE EXISTS (SELECT 1 FROM results AS other WHERE other.id = own.id AND other.output <> own.output)
GROUP BY output, partition
"""
_BY_ID = """
SELECT id, sum(output = 0), sum(output = 1), min(digest) <> max(digest) FROM results GROUP BY id
"""
_FIRST_PLACE = "SELECT partition, at FROM results WHERE id = ? ORDER BY rowid LIMIT 1"
_CONTENTS = "SELECT key, value FROM results WHERE id = ? AND output = ? ORDER BY rowid"


class Kind(StrEnum):
    ONLY_FIRST = "only_first"
    ONLY_SECOND = "only_second"
    DIFFERENT = "different"
    """In both outputs, with another key or value."""
    DUPLICATES_FIRST = "duplicates_first"
    """Records of the first output with the id of an earlier one."""
    DUPLICATES_SECOND = "duplicates_second"
    NEWER_FIRST = "newer_first"
    """Only in the first output, and the second query may not have emitted it yet."""
    NEWER_SECOND = "newer_second"


_ONLY = (Kind.ONLY_FIRST, Kind.ONLY_SECOND)
_DUPLICATES = (Kind.DUPLICATES_FIRST, Kind.DUPLICATES_SECOND)
NEWER = (Kind.NEWER_FIRST, Kind.NEWER_SECOND)


@dataclass(frozen=True)
class Result:
    """An output record."""

    id: str
    key: str | None
    value: str | None
    """Key and value as text that is equal if the contents are equal."""
    partition: int
    offset: int


Content = tuple[str | None, str | None]
"""Key and value of a record."""


@dataclass(frozen=True)
class Shown:
    id: str
    contents: tuple[list[Content], list[Content]]
    """The records with that id in each output."""


@dataclass
class Comparison:
    equal: int = 0
    """Ids that both outputs have, with the same keys and values."""
    counts: dict[Kind, int] = field(default_factory=lambda: dict.fromkeys(Kind, 0))
    shown: dict[Kind, list[Shown]] = field(default_factory=lambda: {kind: [] for kind in Kind})
    """The first ids of each kind, sorted."""

    @property
    def is_equal(self) -> bool:
        return not any(count for kind, count in self.counts.items() if kind not in NEWER)


class Results:
    """The results of both outputs in a temporary file. Raises SetupError if the disk is full."""

    def __init__(self, folder: Path) -> None:
        self._database = sqlite3.connect(folder / "results", isolation_level=None)
        self._reached: tuple[dict[tuple[Side, str, int], int], ...] = ({}, {})
        """Per output the greatest offset of each input partition in its ids."""
        with _full_disk_reported(folder):
            for setting in (f"cache_size = -{_CACHE_KIB}", "journal_mode = OFF", "synchronous = 0"):
                self._database.execute(f"PRAGMA {setting}")
            self._database.execute(_TABLE)
        self._folder = folder

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._database.close()

    def add(self, output: int, results: Iterable[Result]) -> None:
        with _full_disk_reported(self._folder):
            self._database.execute("BEGIN")
            self._database.executemany(
                "INSERT INTO results VALUES (?, ?, ?, ?, ?, ?, ?)", self._rows(output, results)
            )
            self._database.execute("COMMIT")

    def _rows(self, output: int, results: Iterable[Result]) -> Iterator[tuple[object, ...]]:
        reached = self._reached[output]
        for result in results:
            for side, record in (places(result.id) or {}).items():
                partition = (side, record.topic, record.partition)
                reached[partition] = max(record.offset, reached.get(partition, -1))
            content = repr((result.key, result.value)).encode()
            digest = hashlib.blake2b(content, digest_size=16).digest()
            at = (result.partition, result.offset)
            yield (result.id, output, digest, result.key, result.value, *at)

    def compared(self, *, limit: int, are_complete: bool) -> Comparison:
        """`limit`: ids to show of each kind. `are_complete`: both queries have emitted all results,
        so that none is newer than the other output. Call it once, after `add`."""
        comparison = Comparison()
        with _full_disk_reported(self._folder):
            self._database.execute(_INDEX)
            last_common = {
                (output, partition): at
                for output, partition, at in self._database.execute(_LAST_COMMON)
            }
            # Without a common result, nothing shows that both are outputs of one join.
            are_complete = are_complete or not last_common
            for result_id, first, second, differs in self._database.execute(_BY_ID):
                counts = (first, second)
                for output in OUTPUTS:
                    if counts[output] > 1:
                        kind = _DUPLICATES[output]
                        self._count(comparison, kind, result_id, limit, counts[output] - 1)
                if first and second:
                    if differs:
                        self._count(comparison, Kind.DIFFERENT, result_id, limit)
                    else:
                        comparison.equal += 1
                    continue
                output = 0 if first else 1
                is_newer = not are_complete and self._is_newer(output, result_id, last_common)
                self._count(comparison, (NEWER if is_newer else _ONLY)[output], result_id, limit)
        return comparison

    def _count(
        self, comparison: Comparison, kind: Kind, result_id: str, limit: int, number: int = 1
    ) -> None:
        comparison.counts[kind] += number
        shown = comparison.shown[kind]
        if len(shown) < limit:
            first, second = (
                self._database.execute(_CONTENTS, (result_id, output)).fetchall()
                for output in OUTPUTS
            )
            shown.append(Shown(result_id, (first, second)))

    def _is_newer(
        self, output: int, result_id: str, last_common: dict[tuple[int, int], int]
    ) -> bool:
        """Whether the other query may not have emitted the result yet.

        The other query emits a pair once it has read both records. The positions do not determine
        when it emits a single row (unmatched, or at its first match): such a result is newer unless
        its partition contains a later result that both outputs have.
        """
        other = self._reached[1 - output]
        records = places(result_id) or {}
        for side, record in records.items():
            if record.offset > other.get((side, record.topic, record.partition), -1):
                return True
        if len(records) > 1:
            return False
        partition, at = self._database.execute(_FIRST_PLACE, (result_id,)).fetchone()
        return int(at) > last_common.get((output, partition), -1)


@contextmanager
def _full_disk_reported(folder: Path) -> Iterator[None]:
    try:
        yield
    except sqlite3.OperationalError as error:
        raise SetupError(
            f"the results cannot be compared in {folder}: {error}. Set TMPDIR to a folder with as "
            "much space as both topics need, or compare a part with --since and --until"
        ) from error
