"""The demo with a table: its records, and a check that finds each planted difference."""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from itertools import takewhile

import pytest

from deploy.demo.check import CheckResult, check_result
from deploy.demo.joins import TABLE
from deploy.demo.load import SIDES, BadRecord, Delivered, OutputRow
from deploy.demo.service import Figures
from deploy.demo.table import (
    BAD_REASONS,
    CLOSING_ORDER,
    CUSTOMERS,
    Customer,
    Order,
    closing_orders,
    demo_records,
    expected,
)
from job.spec.engine import Engine
from tests.unit.service.builders import query_after

START_MS = 1_790_000_000_000
# In the order in which the broker has acknowledged them; the offsets are those of each topic.
DELIVERED = [
    Delivered(Order(1, 7), 0, 0),  # 0: before the first row of the customer
    Delivered(Customer(7, "silver", 1), 0, 0),
    Delivered(Customer(7, "gold", 2), 0, 1),
    Delivered(Order(2, 7), 0, 1, sent_after=3),  # 3: the row with 2 points, or a newer one
    Delivered(Customer(7, "gold", 3), 0, 2),
    Delivered(Customer(7, tier=None), 0, 3),
    Delivered(Order(3, 7), 0, 2, sent_after=6),  # 6: the row is deleted
    Delivered(Customer(7, "gold", 4), 0, 4),
    Delivered(Customer(8, "platinum", 5), 0, 5),
    Delivered(Order(4, None), 0, 3, sent_after=9),
    Delivered(Order(CLOSING_ORDER, 7), 0, 4, sent_after=10),
]


def output_row(
    order: int, order_id: int, customer_id: int | None, *version: object, match: int | None = None
) -> OutputRow:
    """Of the order with this offset; `match`: offset of the customer's record."""
    names = ("order_id", "customer_id", "amount", "name", "tier", "points")
    values = (order_id, customer_id, 1, *(version or (None, None, None)))
    text = ",".join(
        f'"{name}":{"null" if value is None else value}'
        for name, value in zip(names, values, strict=True)
    )
    place = None if match is None else f"customers/0/{match}"
    return OutputRow(f"orders/0/{order}|", str(order_id), f"{{{text}}}", place)


ROW_1 = ('"barbara"', '"silver"', 1)
ROW_2 = ('"barbara"', '"gold"', 2)
ROW_3 = ('"barbara"', '"gold"', 3)
ROW_4 = ('"barbara"', '"gold"', 4)
OUTPUT = [
    output_row(0, 1, 7),
    output_row(1, 2, 7, *ROW_2, match=1),
    output_row(2, 3, 7),
    output_row(3, 4, None),
    output_row(4, 0, 7, *ROW_4, match=4),
]
FIRST, SECOND = OUTPUT[:2]
DIFFERENT = {"  missing", "  unexpected"}
OUTDATED = output_row(1, 2, 7, *ROW_1, match=0)
OUTDATED_AT_THE_END = output_row(4, 0, 7, *ROW_3, match=2)


@pytest.mark.parametrize(
    "also_right",
    [
        [],
        # A newer row of the customer than the one that was there when the order was sent.
        [output_row(0, 1, 7, *ROW_4, match=4)],
        [output_row(1, 2, 7, *ROW_3, match=2)],
        # The customer was deleted after the order was sent.
        [output_row(1, 2, 7)],
        [output_row(2, 3, 7, *ROW_4, match=4)],
    ],
)
def test_each_row_that_an_order_could_get_is_right(also_right: list[OutputRow]) -> None:
    changed = {row.id: row for row in [*OUTPUT, *also_right]}

    assert result_of([*changed.values()]).is_right


@pytest.mark.parametrize("engine", Engine)
@pytest.mark.parametrize(
    ("planted", "wrong"),
    [
        (lambda rows: rows[1:], {"output rows", "  missing"}),
        (lambda rows: [*rows, SECOND], {"  repeated"}),
        # Two results with two versions.
        (
            lambda rows: [*rows, output_row(1, 2, 7, *ROW_3, match=2)],
            {"output rows", "  unexpected"},
        ),
        (lambda rows: [*rows, replace(FIRST, id="orders/0/9|")], {"output rows", "  unexpected"}),
        # Columns of another version than the header names.
        (lambda rows: changed(rows, replace(SECOND, match="customers/0/2")), DIFFERENT),
        (lambda rows: changed(rows, replace(SECOND, match=None)), DIFFERENT),
        (lambda rows: changed(rows, output_row(2, 3, 7, match=3)), DIFFERENT),
        # A version of another customer.
        (
            lambda rows: changed(rows, output_row(1, 2, 7, '"edsger"', '"platinum"', 5, match=5)),
            DIFFERENT,
        ),
        (lambda rows: changed(rows, output_row(3, 4, None, *ROW_4, match=4)), DIFFERENT),
        (lambda rows: changed(rows, replace(SECOND, key="7")), DIFFERENT),
        # The job had read all of the table before the closing order was sent.
        (lambda rows: changed(rows, OUTDATED_AT_THE_END), {"  outdated"}),
        (lambda rows: changed(rows, output_row(4, 0, 7)), {"  outdated"}),
    ],
)
def test_planted_difference_is_wrong_in_both_engines(
    engine: Engine, planted: Callable[[list[OutputRow]], list[OutputRow]], wrong: set[str]
) -> None:
    assert wrong == wrongs(result_of(planted(OUTPUT), engine))


@pytest.mark.parametrize(
    "outdated", [OUTDATED, output_row(2, 3, 7, *ROW_3, match=2)], ids=["row", "row before delete"]
)
def test_older_row_than_one_that_was_acknowledged_before_is_wrong_in_micro_batches(
    outdated: OutputRow,
) -> None:
    output = changed(OUTPUT, outdated)
    result = result_of(output)

    assert {"  outdated"} == wrongs(result)
    assert [outdated] == result.differences.outdated
    assert f"outdated: {outdated.id} key {outdated.key} {outdated.value}" in str(result.differences)
    # In real time the table may be applied later.
    assert result_of(output, Engine.REAL_TIME).is_right


def test_short_load_meets_every_case() -> None:
    end_ms = START_MS + 20_000
    load = list(takewhile(lambda each: each[0] < end_ms, demo_records(START_MS)))
    records = [record for _, record in load]
    customers = [record for record in records if isinstance(record, Customer)]
    rows = Counter(each.customer_id for each in customers)

    assert sorted(load, key=lambda each: each[0]) == load
    assert set(range(1, CUSTOMERS + 1)) == set(rows)
    assert min(rows.values()) > 10
    assert {None, "silver", "gold", "platinum"} == {each.tier for each in customers}
    assert None in {each.customer_id for each in records if isinstance(each, Order)}
    assert {(side, reason) for side in SIDES for reason in BAD_REASONS[side]} == {
        (each.side, each.reason) for each in records if isinstance(each, BadRecord)
    }
    # A compacted topic refuses records without a key.
    assert all(each.key is not None for each in records if each.side == "right")


def test_each_customer_has_a_closing_order() -> None:
    sent = [Delivered(order, 0, number) for number, order in enumerate(closing_orders())]

    assert CUSTOMERS == len({row.id for row in expected(sent, [], is_ordered=True).rows})


def result_of(output: list[OutputRow], engine: Engine = Engine.MICRO_BATCH) -> CheckResult:
    sides = Counter(each.record.side for each in DELIVERED)
    counted = {"output_records_total": len(output), "null_key_records_total": 1}
    labels = {"null_key_records_total": frozenset({("side", "left")})}
    samples = {
        (f"streamjoin_{name}", labels.get(name, frozenset())): float(number)
        for name, number in counted.items()
    }
    figures = Figures(query_after(left=sides["left"], right=sides["right"]), samples)
    return check_result(TABLE, engine, DELIVERED, output, figures)


def changed(rows: list[OutputRow], row: OutputRow) -> list[OutputRow]:
    """The rows with this one in place of the one with its id."""
    return [row if each.id == row.id else each for each in rows]


def wrongs(result: CheckResult) -> set[str]:
    return {finding.what for finding in result.findings if not finding.is_right}
