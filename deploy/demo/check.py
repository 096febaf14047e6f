"""Compares the results of the demo with the expected rows. Pure.

The expected rows follow from the records that were sent, the counts of the job come from the
service, and the results are read from the output topic.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from deploy.demo.joins import DemoJoin
from deploy.demo.load import SIDES, BadRecord, Delivered, OutputRow, Side
from deploy.demo.service import Figures
from job.spec.engine import Engine

DIFFERENCES_SHOWN = 5


@dataclass(frozen=True)
class Differences:
    missing: Sequence[OutputRow]
    unexpected: Sequence[OutputRow]
    repeated: Sequence[OutputRow]
    """Expected rows that occur again with the same id."""
    outdated: Sequence[OutputRow] = ()
    """Rows with an older row of the table than the one that their record must get."""

    def __str__(self) -> str:
        """The first rows of each kind."""
        return "\n".join(
            line
            for name in ("missing", "unexpected", "repeated", "outdated")
            for line in _listed(name, getattr(self, name))
        )


@dataclass(frozen=True)
class Finding:
    what: str
    expected: int
    found: int
    is_right: bool
    """Equal, or different for an allowed reason (a restart)."""


@dataclass(frozen=True)
class CheckResult:
    findings: Sequence[Finding]
    differences: Differences

    @property
    def is_right(self) -> bool:
        return all(finding.is_right for finding in self.findings)


def check_result(
    join: DemoJoin,
    engine: Engine,
    delivered: Sequence[Delivered],
    output: Sequence[OutputRow],
    figures: Figures,
) -> CheckResult:
    expected = join.expected(delivered, output, engine)
    different = replace(differences(expected.rows, output), outdated=expected.outdated)
    restarts = figures.metric("query_restarts_total")
    findings = [
        _equal("output rows", len(expected.rows), len(output) - len(different.repeated)),
        _equal("  missing", 0, len(different.missing)),
        _equal("  unexpected", 0, len(different.unexpected)),
        # Repeated rows are allowed only after a restart.
        _excused(_equal("  repeated", 0, len(different.repeated)), restarts),
        *([_equal("  outdated", 0, len(different.outdated))] if join.table else []),
        _equal("late rows", 0, figures.metric("late_rows_total")),
        # Counts of a batch are lost if the JVM is killed before it reports them.
        *(_excused(finding, restarts) for finding in _counted(join, delivered, output, figures)),
    ]
    return CheckResult(findings, different)


def differences(expected: Iterable[OutputRow], found: Iterable[OutputRow]) -> Differences:
    """Compare as multisets by id, key and text of each row, ignoring the order."""
    due, actual = Counter(expected), Counter(found)
    extra = actual - due
    return Differences(
        missing=_rows(due - actual),
        unexpected=_rows(Counter({row: n for row, n in extra.items() if row not in due})),
        repeated=_rows(Counter({row: n for row, n in extra.items() if row in due})),
    )


def _counted(
    join: DemoJoin, delivered: Iterable[Delivered], output: Sequence[OutputRow], figures: Figures
) -> Iterable[Finding]:
    """Counts reported by the job."""
    written = figures.metric("output_records_total")
    yield _equal("rows out, by the job's count", len(output), written)
    yield from _counted_inputs(join, delivered, figures)


def _counted_inputs(
    join: DemoJoin, delivered: Iterable[Delivered], figures: Figures
) -> list[Finding]:
    """Input counts that the job must report."""
    records: Counter[Side] = Counter()
    null_keys: Counter[Side] = Counter()
    bad: Counter[tuple[Side, str]] = Counter()
    for row in delivered:
        side, record = row.record.side, row.record
        records[side] += 1
        if isinstance(record, BadRecord):
            bad[side, record.reason] += 1
        elif record.has_null_key:
            null_keys[side] += 1
    return [
        finding
        for side in SIDES
        for finding in (
            _equal(
                f"{join.topics[side]} read", records[side], figures.query.side(side).input_records
            ),
            _equal(
                "  null keys",
                null_keys[side],
                figures.metric("null_key_records_total", side=side),
            ),
            *_bad_records(side, bad, figures),
        )
    ]


def _bad_records(
    side: Side, expected: Mapping[tuple[Side, str], int], figures: Figures
) -> list[Finding]:
    reasons = {reason for of_side, reason in expected if of_side == side}
    reasons |= figures.bad_reasons(side)
    return [
        _equal(f"  {reason}", expected.get((side, reason), 0), figures.bad_records(side, reason))
        for reason in sorted(reasons)
    ]


def _equal(what: str, expected: int, found: int) -> Finding:
    return Finding(what, expected, found, is_right=expected == found)


def _excused(finding: Finding, restarts: int) -> Finding:
    return replace(finding, is_right=True) if restarts else finding


def _rows(counted: Mapping[OutputRow, int]) -> list[OutputRow]:
    """Each row as often as it was counted, in a stable order."""
    return sorted((row for row, n in counted.items() for _ in range(n)), key=lambda row: row.id)


def _listed(name: str, rows: Sequence[OutputRow]) -> Iterable[str]:
    for row in rows[:DIFFERENCES_SHOWN]:
        match = "" if row.match is None else f" match {row.match}"
        yield f"{name}: {row.id} key {row.key} {row.value}{match}"
    if len(rows) > DIFFERENCES_SHOWN:
        yield f"{name}: and {len(rows) - DIFFERENCES_SHOWN:,} more"
