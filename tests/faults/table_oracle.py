"""Checks the results of a left outer join with a table, from the records in Kafka, in plain Python,
without code of the job.

Each left row has one result, with a row that its key had in the table, or with none. Which one
depends on when the job has read the table, so the oracle knows the oldest one that is right. The
number `n` of a record is larger than those of all records that were acknowledged before it was
created.
"""

import json
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from tests.faults.oracle import SHOWN, CheckResult, Record, Row, rows_of

SETTLED = "watermark-"
"""Begins the key of a left row if all records with smaller numbers were read before the next row
was created."""


@dataclass(frozen=True)
class Version:
    """What a key has in the table after a record."""

    n: int
    place: str | None
    """None: no row."""


_NOTHING = Version(-1, None)


def check_table_results(
    left: Sequence[Record],
    right: Sequence[Record],
    output: Sequence[Record],
    *,
    is_ordered: bool,
) -> CheckResult:
    """All committed records of the three topics, each from its beginning. `is_ordered`: whether a
    left row joins all records of the table that were acknowledged before it was created."""
    lefts, unreadable = rows_of(left)
    histories = _histories(right)
    settled = sorted(row.n for row in lefts if row.k is not None and row.k.startswith(SETTLED))

    def problem(record: Record, row: Row) -> str | None:
        read = row.n if is_ordered else _before(settled, row.n)
        versions = _since(histories.get(row.k or "", [_NOTHING]), read)
        return problem_of_version(record, row, versions)

    right_rows = sum(len(history) - 1 for history in histories.values())
    return replace(
        check_one_result_each(lefts, output, problem), right_rows=right_rows, unreadable=unreadable
    )


def check_one_result_each(
    lefts: Sequence[Row],
    output: Iterable[Record],
    problem_of: Callable[[Record, Row], str | None],
) -> CheckResult:
    """Each left row has one result. `problem_of`: what is wrong with a result."""
    rows = {f"{row.place}|": row for row in lefts}
    counts: Counter[str] = Counter()
    wrong: list[str] = []
    matched = 0
    for record in output:
        identity = record.headers["streamjoin-id"].decode()
        counts[identity] += 1
        matched += record.headers.get("streamjoin-match") is not None
        row = rows.get(identity)
        if row is None:
            wrong.append(f"never joined, and out: {identity}")
        elif problem := problem_of(record, row):
            wrong.append(problem)
    lost = [row for identity, row in rows.items() if identity not in counts]
    repeated = {identity: count for identity, count in counts.items() if count > 1}
    return CheckResult(
        left_rows=len(lefts),
        right_rows=0,
        late_rows=0,
        unreadable=0,
        matched=matched,
        unmatched=len(rows) - matched,
        results=counts.total(),
        losses=len(lost),
        phantoms=len(wrong),
        duplicates=sum(repeated.values()) - len(repeated),
        problems=[
            *(f"lost: {row}" for row in lost[:SHOWN]),
            *wrong[:SHOWN],
            *(f"out {n} times: {identity}" for identity, n in list(repeated.items())[:SHOWN]),
        ],
    )


def live_keys(right: Iterable[Record]) -> int:
    """Number of keys that have a row after all records."""
    return sum(history[-1].place is not None for history in _histories(right).values())


def _histories(right: Iterable[Record]) -> Mapping[str, Sequence[Version]]:
    """By key, in the order of the offsets. A key is in one partition."""
    histories: defaultdict[str, list[Version]] = defaultdict(lambda: [_NOTHING])
    for record in sorted(right, key=lambda record: (record.partition, record.offset)):
        if record.key is None:
            continue
        if record.value is None:
            version = Version(int(record.headers["n"]), None)
        else:
            version = Version(json.loads(record.value)["n"], record.place)
        histories[record.key.decode()].append(version)
    return histories


def _before(settled: Sequence[int], n: int) -> int:
    """The last number before `n`. 0: there is none."""
    index = bisect_left(settled, n)
    return settled[index - 1] if index else 0


def _since(history: Sequence[Version], read: int) -> Sequence[Version]:
    """From the newest version with a number smaller than `read` on."""
    oldest = max(index for index, version in enumerate(history) if version.n < read)
    return history[oldest:]


def problem_of_version(record: Record, row: Row, right_versions: Sequence[Version]) -> str | None:
    """What is wrong with the result of a row that may be joined with each of these versions."""
    place = record.headers.get("streamjoin-match")
    match = None if place is None else place.decode()
    value = json.loads(record.value or b"{}")
    for version in right_versions:
        if version.place == match:
            expected = (row.k, row.n, None if match is None else version.n)
            actual = (value["k"], value["l"], value["r"])
            return None if expected == actual else f"wrong value: {row} has {value}"
    return f"wrong version: {row} has {match}, and not one of {list(right_versions)[:SHOWN]}"
