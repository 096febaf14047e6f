"""The records of the demo with a table, and the results that the join may emit for them. Pure, as
load.py.

An order is joined with the row that its customer has in the table when the job reads the order.
So several results of an order may be right. The header streamjoin-match of a result names the
record of the customer that the job has used, and `expected` checks that it could be this one.
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from random import Random
from typing import ClassVar

from deploy.demo.load import (
    SEED,
    SIDES,
    BadRecord,
    Delivered,
    Expected,
    OutputRow,
    Record,
    Side,
    drawn,
    in_order_of_arrival,
    json_bytes,
    place,
)

# As in table.yaml; a test compares both.
TOPICS: Mapping[Side, str] = {"left": "orders", "right": "customers"}
OUTPUT_TOPIC = "enriched"

ORDERS_PER_SECOND = 150
CUSTOMERS = 40
# Share of the orders before which the row of their customer changes, and the time between both:
# about that in which the broker acknowledges a record. So many orders follow just after an
# acknowledgement.
CHANGED_BEFORE = 0.4
CHANGE_TO_ORDER_MS = (0, 60)
DELETED = 0.15
NO_CUSTOMER_ID = 0.01
BAD_RECORD = 0.02
BAD_REASONS: Mapping[Side, tuple[str, ...]] = {
    "left": ("tombstone", "malformed_json", "schema_mismatch"),
    # A record of a table without a value is a tombstone, which deletes its key.
    "right": ("malformed_json", "schema_mismatch"),
}
NAMES = ("ada", "alan", "barbara", "edsger", "grace")
TIERS = {"silver": 60, "gold": 30, "platinum": 10}
# The order_id of the orders that are sent when the job has read all other records.
CLOSING_ORDER = 0


@dataclass(frozen=True)
class Order:
    side: ClassVar[Side] = "left"
    order_id: int
    customer_id: int | None
    amount: int = 1

    @property
    def key(self) -> str:
        return str(self.order_id)

    @property
    def has_null_key(self) -> bool:
        return self.customer_id is None

    @property
    def fields(self) -> dict[str, object]:
        return {
            "order_id": self.order_id,
            "customer_id": self.customer_id,
            "amount": self.amount,
        }

    @property
    def value(self) -> bytes:
        return json_bytes(self.fields)


@dataclass(frozen=True)
class Customer:
    """A record of the table: the new row of a customer, or a tombstone."""

    side: ClassVar[Side] = "right"
    has_null_key: ClassVar[bool] = False
    customer_id: int
    tier: str | None = "silver"
    """None: the record is a tombstone."""
    points: int = 0

    @property
    def key(self) -> str:
        return str(self.customer_id)

    @property
    def fields(self) -> dict[str, object]:
        name = NAMES[self.customer_id % len(NAMES)]
        return {"name": name, "tier": self.tier, "points": self.points}

    @property
    def value(self) -> bytes | None:
        return None if self.tier is None else json_bytes(self.fields)


@dataclass(frozen=True)
class Version:
    """What the table has for a customer after one of its records, or before the first one."""

    record: Customer | None
    """None: no row."""
    match: str | None
    """Header streamjoin-match of a result with this version."""
    acknowledged: int
    """Number of records of the demo that were acknowledged before this one."""


NO_VERSION = Version(record=None, match=None, acknowledged=-1)


def demo_records(start_ms: int, seed: int = SEED) -> Iterator[tuple[int, Record]]:
    """The records in order of arrival, each with its time of arrival; endless. The same seed and
    start give the same records."""
    dice = Random(seed)  # noqa: S311  # sample data
    orders = ((number, start_ms + number * 1000 // ORDERS_PER_SECOND) for number in count(1))
    return in_order_of_arrival((now_ms, _of_one_order(n, now_ms, dice)) for n, now_ms in orders)


def closing_orders() -> list[Order]:
    """An order of each customer."""
    return [Order(CLOSING_ORDER, customer_id) for customer_id in range(1, CUSTOMERS + 1)]


def expected(
    delivered: Sequence[Delivered], output: Iterable[OutputRow], *, is_ordered: bool
) -> Expected:
    """The results of all orders, one each, with the versions that `output` has if these are right.

    A version is right if it is of the order's customer, and if no newer one was acknowledged before
    the order was sent. `is_ordered`: whether the latter holds for all orders, and not only for the
    closing ones, before which the job has read the whole table.
    """
    versions, results = _versions(delivered), defaultdict[str, list[OutputRow]](list)
    for row in output:
        results[row.id].append(row)
    rows: list[OutputRow] = []
    outdated: list[OutputRow] = []
    for sent in delivered:
        if isinstance(order := sent.record, Order):
            of_customer = [NO_VERSION, *versions.get(order.customer_id, ())]
            is_bound = is_ordered or order.order_id == CLOSING_ORDER
            oldest = _newest_before(sent.sent_after, of_customer) if is_bound else 0
            found = results[_result_id(sent)]
            right = _with_one_of(of_customer[oldest:], sent, found)
            older = [] if right else _with_one_of(of_customer[:oldest], sent, found)[:1]
            outdated += older
            rows += right[:1] or older or [_output_row(sent, of_customer[oldest])]
    return Expected(rows, outdated)


def bad_record(side: Side, reason: str, key: int) -> BadRecord:
    """A readable record with one defect."""
    good: Order | Customer = Order(key, 1) if side == "left" else Customer(key)
    return BadRecord(side, reason, _damaged(good, reason), good.key)


def _damaged(good: Order | Customer, reason: str) -> bytes | None:
    match reason:
        case "tombstone":
            return None
        case "malformed_json":
            return json_bytes(good.fields)[:-1]
        case "schema_mismatch":
            number = "amount" if good.side == "left" else "points"
            return json_bytes({**good.fields, number: "many"})
    raise ValueError(f"unknown reason: {reason}")


def _of_one_order(order_id: int, now_ms: int, dice: Random) -> Iterator[tuple[int, Record]]:
    """An order, in part just after a change of its customer, and sometimes a defect."""
    customer_id = dice.randint(1, CUSTOMERS)
    ordered_ms = now_ms
    if dice.random() < CHANGED_BEFORE:
        tier = None if dice.random() < DELETED else drawn(TIERS, dice)
        # Each version has other points: a result with columns of another version is noticed.
        yield now_ms, Customer(customer_id, tier, points=order_id)
        ordered_ms += dice.randint(*CHANGE_TO_ORDER_MS)
    is_known = dice.random() >= NO_CUSTOMER_ID
    yield ordered_ms, Order(order_id, customer_id if is_known else None, dice.randint(1, 200))
    if dice.random() < BAD_RECORD:
        side = dice.choice(SIDES)
        yield now_ms, bad_record(side, dice.choice(BAD_REASONS[side]), customer_id)


def _versions(delivered: Iterable[Delivered]) -> Mapping[int | None, list[Version]]:
    """The versions of each customer, oldest first: the records of a key are in one partition, which
    acknowledges them in order."""
    versions = defaultdict[int | None, list[Version]](list)
    for number, row in enumerate(delivered):
        if isinstance(record := row.record, Customer):
            is_row = record.value is not None
            versions[record.customer_id].append(
                Version(record if is_row else None, place(row, TOPICS) if is_row else None, number)
            )
    return versions


def _newest_before(sent_after: int, versions: Sequence[Version]) -> int:
    """Index of the newest version that was acknowledged before an order was sent."""
    return bisect_left(versions, sent_after, key=lambda version: version.acknowledged) - 1


def _with_one_of(
    versions: Iterable[Version], order: Delivered, found: Sequence[OutputRow]
) -> list[OutputRow]:
    """Those of the results found that the order has with one of the versions."""
    named = {row.match for row in found}
    rows = {_output_row(order, version) for version in versions if version.match in named}
    return [row for row in found if row in rows]


def _result_id(order: Delivered) -> str:
    return f"{place(order, TOPICS)}|"


def _output_row(sent: Delivered, version: Version) -> OutputRow:
    order, of_customer = sent.record, version.record
    assert isinstance(order, Order)
    columns = of_customer.fields if of_customer else dict.fromkeys(Customer(0).fields)
    value = json_bytes({**order.fields, **columns}).decode()
    return OutputRow(_result_id(sent), order.key, value, version.match)
