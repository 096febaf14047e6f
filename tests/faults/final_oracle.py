"""Checks the results of a final left outer as-of join, from the records in Kafka, in plain Python,
without code of the job.

Each left row has one result once the watermark has passed it by the delay of the table: with the
version of its key that was valid at its time, whatever the job has read first. No version is late.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace

from tests.faults.oracle import DELAY_MS, CheckResult, Record, Row, rows_of
from tests.faults.table_oracle import Version, check_one_result_each, problem_of_version


def check_final_results(
    left: Sequence[Record], right: Sequence[Record], output: Sequence[Record]
) -> CheckResult:
    """All committed records of the three topics, each from its beginning."""
    lefts, bad_lefts = rows_of(left)
    rights, bad_rights = rows_of(right)
    versions, watermark = _versions(rights), _watermark_ms(lefts)

    def problem(record: Record, row: Row) -> str | None:
        return problem_of_version(record, row, [_valid(versions, row)])

    decided = [row for row in lefts if not row.late and _is_decided(row, watermark)]
    return replace(
        check_one_result_each(decided, output, problem),
        right_rows=len(rights),
        late_rows=sum(row.late for row in lefts),
        unreadable=bad_lefts + bad_rights,
    )


def rows_in_state(left: Sequence[Record], right: Sequence[Record]) -> int:
    """Rows that wait, and a version of each key. All versions that were sent before the last
    watermark record are older than the rows that wait."""
    lefts, _ = rows_of(left)
    watermark = _watermark_ms(lefts)
    waiting = sum(not row.late and not _is_decided(row, watermark) for row in lefts)
    newest = [versions[-1] for versions in _versions(rows_of(right)[0]).values()]
    decided_ms = watermark - DELAY_MS - 1
    forgotten = [row for row in newest if _deletes(row) and row.t + DELAY_MS <= decided_ms]
    return waiting + len(newest) - len(forgotten)


def _watermark_ms(lefts: Sequence[Row]) -> int:
    return max((row.t for row in lefts), default=0) - DELAY_MS


def _is_decided(row: Row, watermark_ms: int) -> bool:
    return row.k is None or row.t + DELAY_MS < watermark_ms


def _versions(rights: Sequence[Row]) -> Mapping[str, Sequence[Row]]:
    """By key, in the order of their times; of several with one time only the last one. A key is in
    one partition."""
    of_key: defaultdict[str, dict[int, Row]] = defaultdict(dict)
    for row in sorted(rights, key=lambda row: (row.t, _offset(row))):
        if row.k is not None:
            of_key[row.k][row.t] = row
    return {key: list(versions.values()) for key, versions in of_key.items()}


def _offset(row: Row) -> int:
    return int(row.place.rpartition("/")[2])


def _valid(versions: Mapping[str, Sequence[Row]], row: Row) -> Version:
    before = [each for each in versions.get(row.k or "", []) if each.t <= row.t]
    if not before or _deletes(before[-1]):
        return Version(-1, None)
    return Version(before[-1].n, before[-1].place)


def _deletes(version: Row) -> bool:
    """`table.delete` of the spec."""
    return version.n % 10 == 0
