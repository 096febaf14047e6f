"""`simulate --explain`: from records to sentences, for the causes that a simulation can have."""

import json
from collections.abc import Iterable
from dataclasses import replace
from functools import cache

import pytest

from job.explain.simulated import explained
from job.semantics.cli import Simulation, SimulationError
from job.semantics.input_records import InputRecord, records_of_jsonl
from job.semantics.simulate import simulate
from job.spec.sides import SIDES, Side
from tests.sql_worker import ROWS
from tests.unit.semantics.simulations import T, plan, row

AT = "(event time 2023-11-14T22:13:20.000Z)"
WINDOW = (
    "outside of the window: a right row matches from 0 seconds before to 2 minutes after the left "
    "row"
)
EXPIRED = "expired without a match once the watermark had passed"
EMITTED = "expired without a match and was emitted as unmatched: the result is in batch 1"
NOT_EMITTED = "and join type left_outer emits no unmatched right rows"
# Batch 0 has most rows, the others let the watermark advance; a late row is in the last one.
LEFT = {
    0: [
        row(1, 0, 20, s="a"),
        row(2, 0, 20, s="a"),
        row(3, 0, 20, s="a"),
        row(4, 100, 20, s="a"),
        row(5, 0, 1),
        row(6, 400, 20, s="a"),
        json.dumps({"k": 7, "v": 20}),
        row(8, 0, 7, s="a"),
        row(9, 0, 20, s="a"),
        json.dumps({"value": {"k": "ten", "t": T, "v": 20}, "key": "10"}),
        row(11, 0, 20, s="a"),
        json.dumps({"value": json.loads(row(None, 400, 20)), "key": "12"}),
        row(13, 0, 7, s="a"),
        row(99, 500, 20),
    ],
    3: [row(21, 0, 20, s="a")],
}
RIGHT = {
    0: [
        row(1, 5, s="b"),
        row(2, 200, s="b"),
        row(3, 5, s="test"),
        row(4, 50, s="b"),
        row(5, 5, s="b"),
        row(8, 5, s="b"),
        row(11, 5, s="a"),
        row(99, 500, s="b"),
    ],
    1: [row(98, 500)],
    2: [row(98, 500)],
}


@cache
def simulation() -> Simulation:
    made = plan(
        left__filter="v > 5",
        join__condition="right.s <> 'test' AND right.s <> left.s",
        join__match_window={"before": "0 s", "after": "2 min"},
        output__filter="left.v >= 10",
        on_bad_record=None,
        on_null_key="pass",
        dead_letter={"topic": "dead"},
        on_late_row="dead_letter",
    )
    of = {"left": list(records(LEFT)), "right": list(records(RIGHT))}
    batches = simulate(made, ROWS, of["left"], of["right"])
    return Simulation(made, {side: of[side] for side in SIDES}, batches)


def records(batches: dict[int, list[str]]) -> Iterable[InputRecord]:
    for number, lines in batches.items():
        for record in records_of_jsonl(lines, ROWS):
            yield replace(record, batch=number, offset=100 * number + record.offset)


def place(side: Side, offset: int, *, seconds: int | None = None) -> str:
    topic = "l" if side == "left" else "r"
    time = "" if seconds is None else f" (event time {at(seconds)})"
    return f"{side} {topic}/0/{offset}{time}"


def at(seconds: int) -> str:
    return f"2023-11-14T22:{13 + (20 + seconds) // 60:02}:{(20 + seconds) % 60:02}.000Z"


STORIES = {
    "1": [
        f"{place('left', 0, seconds=0)} matched right r/0/0: the result is in batch 0.",
        f"{place('right', 0, seconds=5)} matched left l/0/0: the result is in batch 0.",
    ],
    "2": [
        (
            f"{place('left', 1, seconds=0)} {EMITTED}; "
            f"right r/0/1 is 3 minutes 20 seconds after it, {WINDOW}."
        ),
        (
            f"{place('right', 1, seconds=200)} {EXPIRED} "
            f"{at(200)}, {NOT_EMITTED}; left l/0/1 is 3 minutes 20 seconds before it, {WINDOW}."
        ),
    ],
    "3": [
        (
            f"{place('left', 2, seconds=0)} {EMITTED}; right r/0/2 matches no row, because "
            "join.condition (right.s <> 'test') is not true."
        ),
        (
            f"{place('right', 2, seconds=5)} matches no row, because join.condition "
            "(right.s <> 'test') is not true, and was dropped."
        ),
    ],
    "4": [
        (
            f"{place('left', 3, seconds=100)} {EMITTED}; "
            f"right r/0/3 is 50 seconds before it, {WINDOW}."
        ),
        (
            f"{place('right', 3, seconds=50)} {EXPIRED} "
            f"{at(50)}, {NOT_EMITTED}; left l/0/3 is 50 seconds after it, {WINDOW}."
        ),
    ],
    "5": [
        f"{place('left', 4, seconds=0)} was dropped by left.filter (v > 5).",
        (
            f"{place('right', 4, seconds=5)} {EXPIRED} "
            f"{at(5)}, {NOT_EMITTED}; left l/0/4 with this key was dropped by left.filter (v > 5)."
        ),
    ],
    "6": [
        (
            f"{place('left', 5, seconds=400)} waits for a right row until the watermark passes "
            f"{at(520)} (30.0 s ahead of it, at the end of the files), and it is then emitted as "
            "unmatched; no right row with this key is in the files."
        )
    ],
    "7": [
        (
            f"{place('left', 6)} is a bad record (missing_event_time): field t is missing or null; "
            "it becomes a dead letter in dead."
        )
    ],
    "8": [
        (
            f"{place('left', 7, seconds=0)} matched right r/0/5, and output.filter (left.v >= 10) "
            "dropped the result."
        ),
        (
            f"{place('right', 5, seconds=5)} matched left l/0/7, and output.filter (left.v >= 10) "
            "dropped the result."
        ),
    ],
    "9": [f"{place('left', 8, seconds=0)} {EMITTED}; no right row with this key is in the files."],
    "10": [
        (
            f"{place('left', 9)} is a bad record (schema_mismatch): not of the declared type: k "
            "INT; it becomes a dead letter in dead."
        )
    ],
    "011": [
        (
            f"{place('left', 10, seconds=0)} {EMITTED}; join.condition (right.s <> 'test' AND "
            "right.s <> left.s) is not true with right r/0/6."
        ),
        (
            f"{place('right', 6, seconds=5)} {EXPIRED} "
            f"{at(5)}, {NOT_EMITTED}; join.condition (right.s <> 'test' AND right.s <> "
            "left.s) is not true with left l/0/10."
        ),
    ],
    "12": [
        (
            f"{place('left', 11, seconds=400)} has a null in its key and was emitted as unmatched: "
            "the result is in batch 0."
        )
    ],
    "13": [
        (
            f"{place('left', 12, seconds=0)} expired without a match, and output.filter "
            "(left.v >= 10) dropped its result."
        )
    ],
    "21": [
        (
            f"{place('left', 300, seconds=0)} was late: it is 8 min 10 s behind the watermark, "
            f"which had reached {at(490)}; it becomes a dead letter in dead."
        )
    ],
    "77": ["no record has the key 77"],
}


def test_filter_that_is_null_is_named() -> None:
    made = plan(left__filter="v > 5", output__filter="left.s <> 'eve'")
    rows = {
        "left": [
            row(1, 0, None),
            row(2, 0, 20),
            row(3, 0, 20),
            row(4, 0, 20, s="eve"),
            row(9, 500, 20),
        ],
        "right": [row(1, 5), row(2, 5), row(4, 5), row(9, 500)],
    }
    of = {side: list(records({0: lines, 1: [row(9, 500)]})) for side, lines in rows.items()}
    batches = simulate(made, ROWS, of["left"], of["right"])
    found = Simulation(made, {side: of[side] for side in SIDES}, batches)

    stories = {key: explained(found, ROWS, key) for key in "1234"}

    assert stories["1"][0].endswith(" was dropped, because left.filter (v > 5) is null.")
    assert stories["1"][1].endswith(
        "; left l/0/0 with this key was dropped, because left.filter (v > 5) is null."
    )
    null = "and output.filter (left.s <> 'eve') is null, so it dropped"
    assert stories["2"][0].endswith(f" matched right r/0/1, {null} the result.")
    assert stories["3"][0].endswith(f" expired without a match, {null} its result.")
    assert stories["4"][0].endswith("output.filter (left.s <> 'eve') dropped the result.")


# Its record key is 10, so it is found for this key.
UNREADABLE = (
    "1 left record has a key that cannot be read, and may be of this key: the first is l/0/9 "
    "(schema_mismatch: not of the declared type: k INT)"
)


@pytest.mark.parametrize("key", STORIES)
def test_each_record_of_a_key_has_one_sentence_with_its_cause(key: str) -> None:
    expected = STORIES[key] if key == "10" else [*STORIES[key], UNREADABLE]
    assert expected == explained(simulation(), ROWS, key)


def test_records_whose_key_cannot_be_read_are_counted() -> None:
    made = plan(on_bad_record="drop")
    bad = ["no JSON", json.dumps({"value": "no row", "key": "3"}), json.dumps({"k": "ten", "t": T})]
    of = {"left": list(records({0: bad})), "right": list(records({0: [row(1, 5), "[]"]}))}
    batches = simulate(made, ROWS, of["left"], of["right"])
    found = Simulation(made, {side: of[side] for side in SIDES}, batches)

    nothing, left, right = explained(found, ROWS, "2")
    assert "no record has the key 2" == nothing
    assert left.startswith("3 left records have keys that cannot be read, and may be of this key: ")
    assert left.endswith(
        "the first is l/0/0 (malformed_json: the value is not one JSON object in UTF-8)"
    )
    assert right.startswith("1 right record has a key that cannot be read, ")
    by_record_key, left, _ = explained(found, ROWS, "3")
    assert by_record_key.startswith("left l/0/1 is a bad record")
    assert left.startswith("2 left records have keys ")


def test_key_with_too_many_parts_is_refused() -> None:
    made = replace(simulation().plan.left, key=simulation().plan.left.key * 2)
    two_parts = replace(simulation(), plan=replace(simulation().plan, left=made))

    with pytest.raises(SimulationError, match="the key has 2 parts"):
        explained(two_parts, ROWS, "1")


def test_filter_that_can_fail_and_is_null_is_named() -> None:
    made = plan(left__filter="10 / v > 1", output__filter="10 / left.v <> 1")
    lines = {
        "left": [row(1, 0, None), row(2, 0, 5), row(9, 500, 5)],
        "right": [row(2, 5), row(9, 500)],
    }
    of = {side: list(records({0: of_side, 1: [row(9, 500)]})) for side, of_side in lines.items()}
    batches = simulate(made, ROWS, of["left"], of["right"])
    found = Simulation(made, {side: of[side] for side in SIDES}, batches)

    [null] = explained(found, ROWS, "1")
    assert null.endswith(" was dropped, because left.filter (10 / v > 1) is null.")
    assert explained(found, ROWS, "2")[0].endswith("the result is in batch 0.")
