"""Time zones of SQL expressions."""

from job.sql.literals import quoted

UTC = "UTC"
"""Time zone of the session."""


def in_time_zone(sql: str, time_zone: str) -> str:
    """`sql` evaluated in a time zone that Java knows (InTimeZone.java)."""
    return sql if time_zone == UTC else f"in_time_zone({quoted(time_zone)}, {sql})"
