"""Computes the expected results from the records in Kafka, in plain Python, without code of the
job.

The join of these tests: full outer on `k`, right - left between -BEFORE_MS and AFTER_MS.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

BEFORE_MS = 60_000
AFTER_MS = 300_000
DELAY_MS = 3_600_000
AHEAD_MS = 3_600_000
SHOWN = 10


@dataclass(frozen=True)
class Record:
    """One record of Kafka."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Mapping[str, bytes] = field(default_factory=dict)

    @property
    def place(self) -> str:
        return f"{self.topic}/{self.partition}/{self.offset}"


@dataclass(frozen=True)
class Row:
    place: str
    k: str | None
    t: int
    n: int
    late: bool


Result = tuple[str, str | None, int | None, int | None]
"""Its id, k, the left n and the right n."""


@dataclass(frozen=True)
class CheckResult:
    """Counts, and the problems in words; none if all is right."""

    left_rows: int
    right_rows: int
    late_rows: int
    unreadable: int
    matched: int
    unmatched: int
    results: int
    losses: int
    phantoms: int
    duplicates: int
    problems: Sequence[str]


def rows_of(records: Iterable[Record]) -> tuple[list[Row], int]:
    """The readable rows, and the number of unreadable records."""
    rows, unreadable = [], 0
    for record in records:
        row = _row(record)
        if row is None:
            unreadable += 1
        else:
            rows.append(row)
    return rows, unreadable


def _row(record: Record) -> Row | None:
    try:
        value: Any = json.loads((record.value or b"").decode())
    except ValueError:
        return None
    if not isinstance(value, dict) or not isinstance(value.get("t"), int):
        return None
    if not 0 < value["t"] <= record.timestamp_ms + AHEAD_MS or not isinstance(value.get("n"), int):
        return None
    return Row(record.place, value.get("k"), value["t"], value["n"], bool(value.get("late")))


def watermark_ms(lefts: Sequence[Row], rights: Sequence[Row]) -> int:
    """The watermark of the slower side."""
    return min(max((row.t for row in rows), default=0) for rows in (lefts, rights)) - DELAY_MS


def expected_results(lefts: Sequence[Row], rights: Sequence[Row]) -> Counter[Result]:
    """Late rows are not joined.

    Unmatched rows are expected once the watermark has passed them by far; a row near the watermark
    would be undecided, and is a mistake of the test.
    """
    lefts = [row for row in lefts if not row.late]
    rights = [row for row in rights if not row.late]
    by_key: dict[str, list[Row]] = defaultdict(list)
    for right in rights:
        if right.k is not None:
            by_key[right.k].append(right)
    expected: Counter[Result] = Counter()
    matched = set()
    for left in lefts:
        for right in by_key[left.k] if left.k is not None else ():
            if -BEFORE_MS <= right.t - left.t <= AFTER_MS:
                expected[f"{left.place}|{right.place}", left.k, left.n, right.n] += 1
                matched |= {left.place, right.place}
    watermark = watermark_ms(lefts, rights)
    for left in lefts:
        if left.place not in matched and _is_out(left, watermark):
            expected[f"{left.place}|", left.k, left.n, None] += 1
    for right in rights:
        if right.place not in matched and _is_out(right, watermark):
            expected[f"|{right.place}", right.k, None, right.n] += 1
    return expected


def _is_out(row: Row, watermark: int) -> bool:
    margin = 2 * (BEFORE_MS + AFTER_MS)
    assert abs(watermark - row.t) > margin, f"undecided: {row} at watermark {watermark}"
    return row.k is None or row.t < watermark


def results_of(records: Iterable[Record]) -> Counter[Result]:
    results: Counter[Result] = Counter()
    for record in records:
        value = json.loads(record.value or b"{}")
        results[record.headers["streamjoin-id"].decode(), value["k"], value["l"], value["r"]] += 1
    return results


def check_results(
    left: Sequence[Record], right: Sequence[Record], output: Sequence[Record]
) -> CheckResult:
    """All committed records of the three topics, each from its beginning."""
    lefts, bad_lefts = rows_of(left)
    rights, bad_rights = rows_of(right)
    expected, actual = expected_results(lefts, rights), results_of(output)
    missing, more = expected - actual, actual - expected
    ids = Counter(result[0] for result in actual.elements())
    repeated = {identity: count for identity, count in ids.items() if count > 1}
    phantoms = Counter({result: n for result, n in more.items() if result not in expected})
    problems = [
        *(f"lost: {result}" for result in list(missing)[:SHOWN]),
        *(f"never joined, and out: {result}" for result in list(phantoms)[:SHOWN]),
        *(f"out {count} times: {identity}" for identity, count in list(repeated.items())[:SHOWN]),
    ]
    matched = sum(n for (identity, *_), n in expected.items() if "" not in identity.split("|"))
    return CheckResult(
        left_rows=len(lefts),
        right_rows=len(rights),
        late_rows=sum(row.late for row in [*lefts, *rights]),
        unreadable=bad_lefts + bad_rights,
        matched=matched,
        unmatched=expected.total() - matched,
        results=actual.total(),
        losses=missing.total(),
        phantoms=phantoms.total(),
        duplicates=sum(repeated.values()) - len(repeated),
        problems=problems,
    )


def offset_log_problems(entries: Mapping[int, str]) -> list[str]:
    """Watermark and offsets of Spark's offset log never go back: {batch id: the file's text}."""
    wrong: list[str] = []
    before: dict[str, int] = {}
    for batch_id, text in sorted(entries.items()):
        lines = text.splitlines()
        now = {"watermark": int(json.loads(lines[1])["batchWatermarkMs"])}
        for line in lines[2:]:
            name, _, places = line.partition(":")
            if not places:
                continue
            for offsets in json.loads(places).values():
                now |= {f"{name}/{partition}": offset for partition, offset in offsets.items()}
        wrong += [
            f"batch {batch_id}: {name} went back from {before[name]} to {value}"
            for name, value in now.items()
            if value < before.get(name, value)
        ]
        before = now
    return wrong
