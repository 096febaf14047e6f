"""What the rows of two samples say about a key."""

from job.proposal.evidence import Evidence

SECOND = 1_000_000


def test_distance_is_that_to_the_nearest_left_row_of_the_key() -> None:
    left, left_times = [("1",), ("1",), ("2",), None], [0, 5 * SECOND, 0, 0]
    right, right_times = (
        [("1",), ("1",), ("3",), None, ("2",)],
        [4 * SECOND, 9 * SECOND, 1, 0, None],
    )
    found = Evidence(left, left_times, right, right_times)
    assert (1, 1, None, None, None) == found.partners
    assert [-SECOND, 4 * SECOND] == found.distances
    assert (2, 5) == (found.shared, found.row_pairs)
    assert "2 shared values, 5 pairs of rows, right - left is -1.0 s to 4.0 s" == str(found)


def test_equal_distances_are_close_and_distances_as_wide_as_the_samples_are_not() -> None:
    keys = [(n,) for n in range(10)]
    times = [n * SECOND for n in range(10)]
    late = [at + 3 * SECOND for at in times]
    assert 1.0 == Evidence(keys, times, keys, late).closeness
    assert 0.0 == Evidence(keys, times, keys, late[::-1]).closeness
