"""The part of the results that is compared."""

import pytest

from job.compare.span import Span
from job.plan.result_id import Place


def place(offset: int, topic: str = "l", partition: int = 0) -> Place:
    return Place(topic, partition, offset)


@pytest.mark.parametrize(
    ("offsets", "expected"),
    [([4], False), ([5], True), ([9], True), ([10], False), ([7, 4], False), ([7, 10], False)],
)
def test_all_records_of_a_result_are_in_the_span(offsets: list[int], expected: bool) -> None:
    span = Span({("l", 0): 5}, {("l", 0): 10})

    assert expected == span.contains(map(place, offsets))


def test_span_without_bounds_contains_every_result() -> None:
    assert Span().contains([place(0), place(10**12)])


def test_partition_that_was_added_later_is_after_both_bounds() -> None:
    added = place(0, partition=1)

    assert Span({("l", 0): 5}, None).contains([added])
    assert not Span(None, {("l", 0): 5}).contains([added])
