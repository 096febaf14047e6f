"""The generated joins are worth comparing: they hold what joins get wrong. No Spark here."""

from collections import Counter

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis.strategies import integers

from tests.semantics.case_generator import JOIN_TYPES, cases
from tests.semantics.join_cases import Case, Data, Restart, specified
from tests.semantics.test_differential import CASES, FIRST_SEED


def test_generated_cases_hold_what_joins_get_wrong() -> None:
    seen: Counter[str] = Counter()

    @settings(
        max_examples=2,  # as in differential.py, which runs these cases
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(integers(0, 1_000_000), cases())
    def collect(_: int, case: Case) -> None:
        batches, _ = specified(case)
        seen["cases"] += 1
        seen["late rows"] += any(batch.late_rows for batch in batches)
        seen["output"] += any(batch.output for batch in batches)
        seen["evictions"] += any(batch.removed_rows for batch in batches)
        seen["restarts"] += any(isinstance(step, Restart) for step in case.steps)
        seen["bad records"] += any(any(batch.bad_records.values()) for batch in batches)
        data = [step for step in case.steps if isinstance(step, Data)]
        seen["backlogs"] += any(step.ahead for step in data)
        seen["partitions"] += any(
            '"partition"' in line for d in data for line in [*d.left, *d.right]
        )
        seen[case.spec["join"]["type"]] += 1

    for number in range(FIRST_SEED, FIRST_SEED + CASES):
        seed(number)(collect)()

    for what in (
        "late rows",
        "output",
        "evictions",
        "restarts",
        "bad records",
        "backlogs",
        "partitions",
    ):
        assert seen[what] > CASES / 20, (what, seen)
    for join_type in JOIN_TYPES:
        assert seen[join_type] > CASES / 50, (join_type, seen)
