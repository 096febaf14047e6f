"""Results of two outputs, compared by their ids."""

from collections.abc import Iterable
from pathlib import Path

import pytest

from job.compare.results import Comparison, Kind, Result, Results
from job.errors import SetupError


def pair(left: int, right: int, value: str = "v", key: str | None = "k") -> tuple[str, ...]:
    """A result of two records of partition 0."""
    return f"l/0/{left}|r/0/{right}", str(key), value


def unmatched(left: int, value: str = "v") -> tuple[str, ...]:
    return f"l/0/{left}|", "k", value


def compared(
    folder: Path,
    first: Iterable[tuple[str, ...]],
    second: Iterable[tuple[str, ...]],
    *,
    are_complete: bool = False,
    limit: int = 10,
) -> Comparison:
    with Results(folder) as results:
        for output, records in enumerate((first, second)):
            results.add(
                output,
                [
                    Result(result_id, key, value, partition=0, offset=offset)
                    for offset, (result_id, key, value) in enumerate(records)
                ],
            )
        return results.compared(limit=limit, are_complete=are_complete)


def counts(comparison: Comparison) -> dict[str, int]:
    """Those that are not 0."""
    return {kind.value: count for kind, count in comparison.counts.items() if count}


def ids(comparison: Comparison, kind: Kind) -> list[str]:
    return [shown.id for shown in comparison.shown[kind]]


def test_same_results_in_another_order_are_equal(tmp_path: Path) -> None:
    records = [pair(1, 1), unmatched(2), pair(3, 4)]

    comparison = compared(tmp_path, records, reversed(records))

    assert (True, 3, {}) == (comparison.is_equal, comparison.equal, counts(comparison))


def test_another_value_and_another_key_are_differences_with_both_contents(tmp_path: Path) -> None:
    comparison = compared(
        tmp_path,
        [pair(1, 1, "old"), pair(2, 2, key="k"), pair(3, 3)],
        [pair(1, 1, "new"), pair(2, 2, key="other"), pair(3, 3)],
    )

    assert (False, 1, {"different": 2}) == (
        comparison.is_equal,
        comparison.equal,
        counts(comparison),
    )
    assert ([("k", "old")], [("k", "new")]) == comparison.shown[Kind.DIFFERENT][0].contents
    assert ([("k", "v")], [("other", "v")]) == comparison.shown[Kind.DIFFERENT][1].contents


def test_pair_is_a_difference_once_the_other_query_has_read_both_records(tmp_path: Path) -> None:
    both_read = pair(5, 5)
    left_unread = pair(9, 5)
    right_unread = pair(5, 9)
    other_partition = ("l/1/0|r/0/5", "k", "v")
    first = [pair(6, 6), both_read, left_unread, right_unread, other_partition]

    comparison = compared(tmp_path, first, [pair(6, 6)])

    assert {"only_first": 1, "newer_first": 3} == counts(comparison)
    assert [both_read[0]] == ids(comparison, Kind.ONLY_FIRST)


def test_last_record_that_the_other_query_has_read_counts_as_read(tmp_path: Path) -> None:
    comparison = compared(tmp_path, [pair(6, 6)], [pair(6, 6), pair(6, 5)])

    assert {"only_second": 1} == counts(comparison)


def test_reading_of_a_topic_on_one_side_is_not_that_of_the_other_side(tmp_path: Path) -> None:
    """A self join reads a topic twice."""
    common = ("t/0/9|t/0/1", "k", "v")

    comparison = compared(tmp_path, [common, ("t/0/1|t/0/5", "k", "v")], [common])

    assert {"newer_first": 1} == counts(comparison)


def test_single_row_is_a_difference_if_a_common_result_comes_after_it(tmp_path: Path) -> None:
    first, early, common, late = pair(8, 8), unmatched(1), pair(9, 9), unmatched(2)

    comparison = compared(tmp_path, [first, early, common, late], [first, common])

    assert {"only_first": 1, "newer_first": 1} == counts(comparison)
    assert [early[0]] == ids(comparison, Kind.ONLY_FIRST)
    assert [late[0]] == ids(comparison, Kind.NEWER_FIRST)


def test_results_at_the_end_of_the_longer_output_are_no_difference(tmp_path: Path) -> None:
    common = [pair(n, n) for n in range(5)]

    comparison = compared(tmp_path, common, [*common, pair(5, 5), unmatched(6)])

    assert (True, {"newer_second": 2}) == (comparison.is_equal, counts(comparison))


def test_nothing_is_newer_if_both_queries_are_complete(tmp_path: Path) -> None:
    common = [pair(n, n) for n in range(5)]

    comparison = compared(tmp_path, common, [*common, pair(5, 5), unmatched(6)], are_complete=True)

    assert (False, {"only_second": 2}) == (comparison.is_equal, counts(comparison))


@pytest.mark.parametrize("other", [[], [pair(7, 7), unmatched(8)]])
def test_outputs_without_a_common_result_differ(
    other: list[tuple[str, ...]], tmp_path: Path
) -> None:
    comparison = compared(tmp_path, [pair(1, 1)], other)

    assert not comparison.is_equal
    assert 1 == comparison.counts[Kind.ONLY_FIRST]


def test_duplicates_are_counted_per_output(tmp_path: Path) -> None:
    comparison = compared(
        tmp_path,
        [pair(1, 1), pair(2, 2), pair(1, 1), pair(1, 1)],
        [pair(1, 1), pair(2, 2), pair(2, 2)],
    )

    assert not comparison.is_equal
    assert 2 == comparison.equal
    assert {"duplicates_first": 2, "duplicates_second": 1} == counts(comparison)
    assert [3] == [len(each.contents[0]) for each in comparison.shown[Kind.DUPLICATES_FIRST]]


def test_duplicate_with_another_value_is_also_a_different_result(tmp_path: Path) -> None:
    comparison = compared(tmp_path, [pair(1, 1), pair(1, 1, "other")], [pair(1, 1)])

    assert {"different": 1, "duplicates_first": 1} == counts(comparison)


def test_all_are_counted_and_the_first_ids_are_shown(tmp_path: Path) -> None:
    first = [pair(n, n) for n in range(9)]

    comparison = compared(tmp_path, first, [pair(8, 8)], limit=2)

    assert {"only_first": 8} == counts(comparison)
    assert ["l/0/0|r/0/0", "l/0/1|r/0/1"] == ids(comparison, Kind.ONLY_FIRST)


def test_missing_value_is_not_the_text_none(tmp_path: Path) -> None:
    with Results(tmp_path) as results:
        results.add(0, [Result("l/0/1|r/0/1", None, "v", 0, 0)])
        results.add(1, [Result("l/0/1|r/0/1", "None", "v", 0, 0)])

        assert {"different": 1} == counts(results.compared(limit=0, are_complete=True))


def test_full_disk_is_an_error_with_a_remedy(tmp_path: Path) -> None:
    with Results(tmp_path) as results:
        results._database.execute("PRAGMA max_page_count = 10")
        many = (Result(f"l/0/{n}|r/0/{n}", "k", "v" * 1_000, 0, n) for n in range(1_000))

        with pytest.raises(SetupError, match=r"disk is full.*TMPDIR"):
            results.add(0, many)
