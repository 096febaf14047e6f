"""Records of a sample."""

from job.semantics.input_records import InputRecord

T0_MS = 1_767_225_600_000
"""2026-01-01T00:00:00Z."""


def records(*values: str, partition: int = 0, at_ms: int = T0_MS) -> list[InputRecord]:
    """Values of consecutive records that were written at `at_ms`."""
    return [
        InputRecord(value.encode(), offset, partition, timestamp_us=at_ms * 1000)
        for offset, value in enumerate(values)
    ]
