"""Topics whose samples do not show a key."""

from tests.unit.proposal.corpus.case import Case, iso, mixed, ms, topic

WEAK = "no key is proposed, because the evidence is weak"

CASES = [
    Case(
        "no shared value",
        topic("orders", lambda n: {"order_id": n, "at": iso(n)}),
        topic("payments", lambda n: {"order_id": 1_000 + n, "at": iso(n)}),
        refused="no value of a column, a nested field or a record key",
    ),
    Case(
        "times alone are equal",
        topic("l", lambda n: {"a": f"l{n}", "at": iso(n), "sent": iso(n) if n else None}),
        topic("r", lambda n: {"b": f"r{n}", "at": iso(n), "sent": iso(n) if n else None}),
        refused="Set --left-key and --right-key",
    ),
    Case(
        "event times without a name that says so are equal",
        topic("l", lambda n: {"a": f"l{n}", "x": ms(n)}),
        topic("r", lambda n: {"b": f"r{n}", "x": ms(n)}),
        refused="no value of a column",
    ),
    Case(
        "constant columns alone are equal",
        topic("l", lambda n: {"a": f"l{n}", "tenant": "acme", "at": iso(n)}, 5),
        topic("r", lambda n: {"b": f"r{n}", "tenant": "acme", "at": iso(n)}, 5),
        refused="no key is proposed",
    ),
    Case(
        "small numbers that are equal by chance",
        topic("l", lambda n: {"width": mixed(n) + 1, "at": iso(n)}),
        topic("r", lambda n: {"height": n % 9 + 1, "at": iso(n)}),
        refused=f"{WEAK} (width = height: 9 shared values",
    ),
    Case(
        "columns of few values",
        topic("l", lambda n: {"country": ["DE", "FR", "IT"][n % 3], "at": iso(n)}, 60),
        topic("r", lambda n: {"country": ["DE", "FR", "IT"][n % 3], "at": iso(n)}, 60),
        refused=WEAK,
    ),
    Case(
        "two keys of equal evidence",
        topic("users", lambda n: {"user_id": f"user-{n}", "at": iso(n)}),
        topic(
            "transfers",
            lambda n: {
                "sender_user_id": f"user-{mixed(n)}",
                "receiver_user_id": f"user-{mixed(n + 5)}",
                "at": iso(n),
            },
        ),
        refused=f"{WEAK} (user_id = ",
    ),
]
