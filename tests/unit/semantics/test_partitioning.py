"""Murmur3 of Spark; tests/semantics compares it with Spark."""

from job.evaluation.partitioning import murmur3, state_partition


def test_known_hashes_of_spark():
    """From the documentation of hash(): SELECT hash('Spark', array(123), 2) is another matter."""
    assert -559580957 == murmur3([1], ["INT"])
    assert -1712319331 == murmur3([1], ["BIGINT"])


def test_null_leaves_the_hash_as_it_is():
    assert 42 == murmur3([None, None], ["INT", "STRING"])
    assert murmur3([7], ["INT"]) == murmur3([7, None], ["INT", "STRING"])


def test_partition_is_never_negative():
    assert 0 <= state_partition([1], ["INT"], 3) < 3
