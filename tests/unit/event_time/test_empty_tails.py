from job.event_time.empty_tails import EmptyTails

STARTS = {"left": {0: 5, 1: 5}, "right": {0: 5}}


def tails() -> EmptyTails:
    found = EmptyTails()
    found.set({"left": {0: (5, 7)}, "right": {}})
    return found


def test_offset_in_a_tail_counts_as_its_end() -> None:
    assert {0: 7, 1: 5} == tails().passed("left", {0: 5, 1: 5})
    assert {0: 7} == tails().passed("left", {0: 6})
    assert {0: 4} == tails().passed("left", {0: 4})
    assert {0: 8} == tails().passed("left", {0: 8})


def test_end_is_cut_off_only_if_the_tail_reaches_up_to_it() -> None:
    assert {0: 5, 1: 6} == tails().cut_off(STARTS, {"left": {0: 7, 1: 6}, "right": {0: 6}})["left"]
    assert {0: 8} == tails().cut_off(STARTS, {"left": {0: 8}, "right": {}})["left"]


def test_new_partition_without_a_start_keeps_its_end() -> None:
    assert {2: 3} == tails().cut_off(STARTS, {"left": {2: 3}, "right": {}})["left"]
