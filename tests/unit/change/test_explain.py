"""The plan of a change in words and as JSON."""

from dataclasses import replace

from job.change.comparison import compared
from job.change.explain import explained, facts
from job.change.replay import Replay
from tests.unit.change.test_replay import REPLAY
from tests.unit.specs import plan


def text(replay: Replay, late_rows: int | None) -> str:
    old, new = plan(), plan(checkpoint="/checkpoints/new")
    needed_ms = {"left": 50_000, "right": 55_000}
    comparison = compared(old, new)
    found = facts(new, comparison, replay, needed_ms, cores=1, late_rows=late_rows)  # type: ignore[arg-type]
    assert replay.possibly_late_records == found["possibly_late_records"]
    assert late_rows == found["late_rows_of_the_job"]
    return explained(new, comparison, replay, found)


def test_records_whose_lateness_is_unknown_are_counted() -> None:
    late = text(REPLAY, 7).split("\nLate rows\n")[1]

    assert late.startswith("  whether 2 of the records that are read again were late is unknown:\n")
    assert "the running job has counted 7 late rows since its start\n" in late
    assert "since its start" not in text(REPLAY, None)


def test_late_rows_that_are_all_known_stay_out() -> None:
    known = replace(REPLAY, late_unknown_before=REPLAY.starts)

    assert (
        "\nLate rows\n  rows that were late in the old query are not joined by the new one\n"
        in text(known, 7)
    )
