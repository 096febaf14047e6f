"""Flat topics with several candidates, of which one is right."""

from tests.unit.proposal.corpus.case import Case, iso, mixed, ms, topic, uuid

CASES = [
    Case(
        "orders and payments",
        topic("shop.orders", lambda n: {"id": n, "ordered_at": iso(n), "amount": n + 0.5}),
        topic("shop.payments", lambda n: {"order_id": n, "ts": ms(n, 7), "id": f"p{n}"}, late=7),
        ("id", "order_id"),
        ("ordered_at", "ts"),
        after="1 minute",
    ),
    Case(
        "flat CDC rows with disjoint ids",
        topic("db.customers", lambda n: {"id": 500 + n, "name": f"c{n}", "updated_at": ms(n)}),
        topic(
            "db.addresses",
            lambda n: {"id": 9_000 + n, "customer_id": 500 + n, "updated_at": ms(n, 2)},
            late=2,
        ),
        ("id", "customer_id"),
        ("updated_at", "updated_at"),
    ),
    Case(
        "camelCase and snake_case",
        topic("orders", lambda n: {"orderId": uuid(n), "status": "new", "at": iso(n)}),
        topic("parcels", lambda n: {"order_id": uuid(n), "status": "new", "at": iso(n, 2)}, late=2),
        ("orderId", "order_id"),
    ),
    Case(
        "different names and long values",
        topic("web", lambda n: {"correlation": uuid(n), "lang": "de", "at": iso(n)}),
        topic("backend", lambda n: {"request": uuid(n), "lang": "de", "at": iso(n, 1)}, late=1),
        ("correlation", "request"),
    ),
    Case(
        "different names, long values and distances that vary",
        topic("web", lambda n: {"correlation": uuid(n), "lang": "de", "at": iso(n)}),
        topic("backend", lambda n: {"request": uuid(mixed(n)), "lang": "de", "at": iso(n)}, late=0),
        ("correlation", "request"),
        after="1 minute",
    ),
    Case(
        "columns of few values and booleans are no key",
        topic(
            "clicks",
            lambda n: {
                "click_id": f"c{n}", "country": "DE" if n % 3 else "FR", "is_new": n % 2 == 0,
                "at": iso(n),
            },
        ),
        topic(
            "purchases",
            lambda n: {
                "click_id": f"c{mixed(n)}", "country": "FR" if n % 3 else "DE",
                "is_new": n % 2 == 0, "at": iso(mixed(n), 5),
            },
            late=25,
        ),
        ("click_id", "click_id"),
    ),
    Case(
        "status code that all rows share is no key",
        topic("requests", lambda n: {"code": 200, "request_id": f"r{n}", "at": iso(n)}),
        topic("replies", lambda n: {"code": 200, "request_id": f"r{n}", "at": iso(n, 1)}, late=1),
        ("request_id", "request_id"),
    ),
    Case(
        "devices with many rows",
        topic("readings", lambda n: {"device_id": f"device-{n % 5}", "value": n, "at": iso(n)}, 60),
        topic(
            "alarms",
            lambda n: {"device_id": f"device-{n % 5}", "value": 3 * n, "at": iso(5 * n, 1)},
            12,
            late=50,
        ),
        ("device_id", "device_id"),
        results=-1,
    ),
    Case(
        "ids that look like epoch seconds are no times",
        topic("orders", lambda n: {"order_no": 1_700_000_000 + 17 * n, "at": iso(n)}),
        topic("parcels", lambda n: {"order_no": 1_700_000_000 + 17 * n, "at": iso(n, 2)}, late=2),
        ("order_no", "order_no"),
    ),
    Case(
        "records that are no objects and tombstones are left out",
        topic("l", lambda n: None if n == 3 else {"uuid": uuid(n), "at": iso(n)}),
        topic("r", lambda n: {"uuid": uuid(n), "at": iso(n, 2)}, late=2),
        ("uuid", "uuid"),
        results=19,
    ),
]  # fmt: skip
