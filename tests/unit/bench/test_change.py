"""The pause of a change, as its consumer sees it."""

from typing import Any

from bench.change import Arrivals


def test_pause_is_the_longest_time_without_a_result_within_the_bounds() -> None:
    unused: Any = None
    arrivals = Arrivals(unused)
    arrivals.at = [1.0, 30.0, 31.0, 35.5, 36.0, 90.0]

    assert 4.5 == arrivals.longest_gap(30.0, 37.0)
    assert 14.0 == arrivals.longest_gap(30.0, 50.0)  # nothing came until the end
