"""Numbers: as text, with zeros in front, of different types, and serial ids."""

from tests.unit.proposal.corpus.case import Case, iso, mixed, ms, topic

CASES = [
    Case(
        "number and text",
        topic("orders", lambda n: {"order_id": n, "at": iso(n)}),
        topic("payments", lambda n: {"order_id": str(n), "at": iso(n, 2)}, late=2),
        ("cast(order_id AS STRING)", "order_id"),
    ),
    Case(
        "number and text with zeros in front",
        topic("stock", lambda n: {"sku": n + 7, "at": iso(n)}),
        topic("sales", lambda n: {"sku": f"{n + 7:06}", "at": iso(n, 2)}, late=2),
        ("lpad(cast(sku AS STRING), 6, '0')", "sku"),
    ),
    Case(
        "texts with and without zeros in front",
        topic("stock", lambda n: {"sku": f"{n + 7:08}", "at": iso(n)}),
        topic("sales", lambda n: {"sku": str(n + 7), "at": iso(n, 2)}, late=2),
        ("sku", "lpad(sku, 8, '0')"),
    ),
    Case(
        "serial ids on both sides",
        topic("orders", lambda n: {"id": n + 1, "customer_id": mixed(n, 30) % 5, "at": iso(n)}, 30),
        topic(
            "payments",
            lambda n: {
                "id": mixed(n, 30) + 1,
                "order_id": n + 1,
                "at": iso(n, 2),
            },
            30,
            late=2,
        ),
        ("id", "order_id"),
        results=30,
        comments=("#   id = id: 30 shared values, 30 pairs of rows, right - left is -2",),
    ),
    Case(
        "serial ids that are equal to the foreign key",
        topic("orders", lambda n: {"id": n + 1, "at": iso(n)}, 30),
        topic("payments", lambda n: {"id": n + 1, "order_id": n + 1, "at": iso(n, 2)}, 30, late=2),
        ("id", "order_id"),
        results=30,
    ),
    Case(
        "serial ids and foreign keys without a helpful name",
        topic("x.l", lambda n: {"id": n + 1, "at": iso(n)}, 30),
        topic(
            "x.r",
            lambda n: {"id": mixed(n, 30) + 1, "belongs_to": n + 1, "at": iso(n, 2)},
            30,
            late=2,
        ),
        ("id", "belongs_to"),
        results=30,
    ),
    Case(
        "sequence numbers are no key",
        topic("sensors", lambda n: {"seq": n, "device_id": f"dev-{mixed(n)}", "at": iso(n)}),
        topic(
            "alarms",
            lambda n: {"seq": n, "device_id": f"dev-{mixed(n)}", "at": iso(n, 2)},
            late=2,
        ),
        ("device_id", "device_id"),
    ),
    Case(
        "equal amounts are no key",
        topic("orders", lambda n: {"id": n, "amount_cents": 1_000 + 13 * n, "at": iso(n)}),
        topic(
            "payments",
            lambda n: {"order_id": n, "amount_cents": 1_000 + 13 * n, "at": iso(n, 2)},
            late=2,
        ),
        ("id", "order_id"),
    ),
    Case(
        "integers of a registered schema with different types",
        topic("orders", lambda n: {"id": n, "at": ms(n)}, id="INT", at="BIGINT"),
        topic(
            "payments",
            lambda n: {"order": {"id": n}, "at": ms(n, 2)},
            late=2,
            order="STRUCT<id: BIGINT>",
            at="BIGINT",
        ),
        ("cast(id AS BIGINT)", "order.id"),
    ),
    Case(
        "registered timestamps",
        topic("orders", lambda n: {"code": f"o-{n}", "at": iso(n)}, code="STRING", at="TIMESTAMP"),
        topic(
            "events",
            lambda n: {"order_code": f"o-{n}", "at": iso(n, 2)},
            late=2,
            order_code="STRING",
            at="TIMESTAMP",
        ),
        ("code", "order_code"),
    ),
]
