"""The remedy of errors after which only a reset lets the query continue."""

from collections.abc import Mapping

from job.spec.sides import Side


def reset_remedy(offsets: Mapping[Side, Mapping[int, int]] | None = None) -> str:
    """The commands, and what they lose. `offsets`: next offset to read of partitions. None: both
    topics are read from their earliest record."""
    options = "--start earliest"
    if offsets is not None:
        options = " ".join(
            f"--{side} {','.join(f'{number}={offset}' for number, offset in starts.items())}"
            for side, starts in offsets.items()
        )
    return (
        "`streamjoin stop SPEC` (a job that has ended: `streamjoin run SPEC --keep-running` "
        f"before), then `streamjoin reset SPEC {options}`, then `streamjoin resume SPEC`. The join "
        "starts again with empty state: rows now in state are not joined"
    )
