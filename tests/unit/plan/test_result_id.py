import pytest

from job.plan.result_id import Place, places


def test_id_names_the_record_of_each_side() -> None:
    assert {"left": Place("shop.l", 0, 17), "right": Place("r_2", 3, 5)} == places(
        "shop.l/0/17|r_2/3/5"
    )
    assert {"left": Place("l", 0, 17)} == places("l/0/17|")
    assert {"right": Place("r", 0, 17)} == places("|r/0/17")


@pytest.mark.parametrize("text", ["", "|", "l/0/17", "l/0|r/0/1", "l/0/x|", "l/0/1|r/0/1|", "a b|"])
def test_other_text_is_no_id(text: str) -> None:
    assert places(text) is None
