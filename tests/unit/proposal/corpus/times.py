"""Units and forms of event times."""

from typing import Any

from tests.unit.proposal.corpus.case import T0, Case, iso, ms, topic, uuid


def pair(
    name: str, left: tuple[Any, str], right: tuple[Any, str] = (iso, "at"), **facts: Any
) -> Case:
    """Orders and payments with these values of `at`, and the event times that are right."""
    (value, time), (other, other_time) = left, right
    return Case(
        name,
        topic("orders", lambda n: {"id": n, "at": value(n)}),
        topic("payments", lambda n: {"order_id": n, "at": other(n)}, late=2),
        ("id", "order_id"),
        (time, other_time),
        **{"after": "1 second", **facts},
    )


CASES = [
    Case(
        "compacted topic of customers that have changed weeks before their orders",
        topic("orders", lambda n: {"customer": uuid(n), "at": iso(n, 2_000_000)}, late=2_000_000),
        topic("customers", lambda n: {"id": uuid(n), "name": f"c{n % 3}", "at": iso(n)}),
        ("customer", "id"),
        after="0 seconds",
        compacted=frozenset({"right"}),
        comments=(
            "  # The topic is compacted: usually it is a table with the newest record of each key.",
            "match_window: {before: 35 days, after: 0 seconds}",
            "  # As customers is compacted, a distance is usually the age of the newest value of a",
        ),
    ),
    pair("seconds", (lambda n: T0 + n, "timestamp_seconds(at)")),
    pair("milliseconds", (ms, "at")),
    pair("microseconds", (lambda n: ms(n) * 1_000, "timestamp_micros(at)")),
    pair("nanoseconds", (lambda n: ms(n) * 1_000_000, "timestamp_micros(at div 1000)")),
    pair("fractions of seconds", (lambda n: T0 + n - 0.25, "timestamp_seconds(at)")),
    pair("seconds as text", (lambda n: str(T0 + n), "timestamp_seconds(cast(at AS BIGINT))")),
    pair(
        "texts without an offset that are UTC",
        (lambda n: iso(n).replace("T", " ")[:-1], "at"),
        comments=("  # time_zone: UTC   # the texts have no offset, and UTC fits: read as UTC",),
    ),
    pair(
        "text in another format",
        (lambda n: f"01/01/2026 00:00:{n:02}", "to_timestamp(at, 'dd/MM/yyyy HH:mm:ss')"),
        comments=("  # time_zone: UTC ",),
    ),
    pair(
        "text in the American format",
        (lambda n: f"12/31/2025 23:59:{n:02}", "to_timestamp(at, 'MM/dd/yyyy HH:mm:ss')"),
        after="5 minutes",
    ),
    pair(
        "nested text",
        (lambda n: {"written": iso(n)}, "at.written"),
        comments=('schema: "id BIGINT, at STRUCT<written: TIMESTAMP>"',),
    ),
    pair(
        "nested texts as Java writes them, without seconds in full minutes",
        (lambda n: {"of": {"id": n, "at": iso(n) if n else iso(n)[:16] + "Z"}}, "at.of.at"),
        comments=("at STRUCT<of: STRUCT<id: BIGINT, at: TIMESTAMP>>",),
    ),
    pair(
        "nested local times",
        (lambda n: {"at": iso(n, 8 * 3_600)[:-1].replace("T", " ")}, "at.at"),
        comments=('time_zone: "+08:00"',),
    ),
    pair(
        "local times of a zone ahead of UTC",
        (lambda n: iso(n, 8 * 3_600)[:-1], "at"),
        comments=('time_zone: "+08:00"   # the texts have no offset: read as UTC, 20 texts are 8',),
    ),
    pair(
        "local times of a zone behind UTC, written 40 s later",
        (lambda n: iso(n, -5 * 3_600 - 40).replace("T", " ")[:-1], "at"),
        comments=('  time_zone: "-05:00"',),
        after="1 minute",
    ),
    pair(
        "local times in another format",
        (lambda n: f"01/01/2026 09:00:{n:02}", "to_timestamp(at, 'dd/MM/yyyy HH:mm:ss')"),
        comments=('  time_zone: "+09:00"',),
    ),
    pair(
        "texts without an offset whose records were written hours later",
        (lambda n: iso(n, -5_000 - 200 * n)[:-1], "at"),
        comments=("  # time_zone: the texts have no offset, and their zone is not known: ",),
        after="6 hours",
    ),
    pair(
        "texts without an offset that are in the future as UTC, at no constant distance",
        (lambda n: iso(n, 7_000 + 200 * n)[:-1], "record_timestamp"),
        comments=(
            "20 texts are 1.94 h after to 3.00 h after their record timestamps: needs time_zone)",
        ),
    ),
    pair(
        "time that is missing in one record of many",
        (lambda n: None if n == 7 else ms(n), "at"),
        comments=("null in 1 of 20 records of the sample: these are bad records",),
        results=19,
    ),
    pair(
        "time that is missing in many records",
        (lambda n: ms(n) if n % 3 else None, "record_timestamp"),
    ),
    pair(
        "no times",
        (lambda n: f"day {n}", "record_timestamp"),
        comments=("# Kafka's timestamp of the record",),
    ),
    Case(
        "several times, of which the nearest to the record is the event time",
        topic(
            "orders",
            lambda n: {
                "id": n, "created_at": iso(n, -86_400), "at": iso(n), "due_at": iso(n, 600),
            },
        ),
        topic("payments", lambda n: {"order_id": n, "at": iso(n, 2)}, late=2),
        ("id", "order_id"),
        comments=("# other times: created_at; due_at",),
    ),
]  # fmt: skip
