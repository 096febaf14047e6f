"""Which damage of Spark's logs is the trace of a power cut, and which is a loss."""

from job.checkpoint.log_check import Entry, Findings, findings

WHOLE = 900


def entries(*numbers: int, empty: int | None = None) -> list[Entry]:
    return [Entry(number, 0 if number == empty else WHOLE) for number in numbers]


def test_whole_logs_have_nothing_wrong() -> None:
    assert Findings() == findings(entries(3, 4, 5), entries(3, 4, 5))
    assert Findings() == findings(entries(3, 4, 5), entries(3, 4))
    assert Findings() == findings([], [])


def test_empty_plan_of_a_batch_that_has_not_ended_can_go() -> None:
    assert Findings(repairable=("offsets/5",)) == findings(entries(3, 4, 5, empty=5), entries(3, 4))


def test_empty_plan_of_a_batch_that_has_ended_is_a_loss() -> None:
    found = findings(entries(3, 4, 5, empty=5), entries(3, 4, 5))

    assert () == found.repairable
    assert ("offsets/5 is truncated to 0 bytes, and is not the newest step",) == found.damage


def test_empty_end_of_the_last_batch_can_go() -> None:
    assert Findings(repairable=("commits/5",)) == findings(
        entries(3, 4, 5), entries(3, 4, 5, empty=5)
    )


def test_empty_end_of_a_batch_after_which_another_was_planned_is_a_loss() -> None:
    found = findings(entries(3, 4, 5, 6), entries(3, 4, 5, empty=5))

    assert () == found.repairable
    assert 1 == len(found.damage)


def test_older_empty_file_is_a_loss() -> None:
    assert () == findings(entries(3, 4, 5, empty=4), entries(3, 4)).repairable
    assert () == findings(entries(3, 4, 5), entries(3, 4, 5, empty=3)).repairable


def test_missing_files_are_named() -> None:
    assert ("offsets/4 is missing",) == findings(entries(3, 5), entries(3, 4)).damage
    assert (
        "commits/5 exists and offsets/5 does not"
        in findings(entries(3, 4), entries(3, 4, 5)).damage[0]
    )
    assert (
        "offsets/6 exists and commits/5 does not"
        in findings(entries(4, 5, 6), entries(3, 4)).damage[0]
    )
