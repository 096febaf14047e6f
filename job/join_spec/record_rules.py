"""Limits and patterns for reading the JSON value of a record.

The job (job/dataflow/record_sql.py, in SQL) and the simulator (job/semantics/, in Python) share
them.
"""

JSON_WHITESPACE = " \t\r\n"

BRACES_MEET = ("}{", "} {", "}\n{")
"""A value with one of these may contain two documents."""

TIMESTAMP_MILLIS_MIN = -62_135_596_800_000
"""0001-01-01T00:00:00.000Z. A smaller number is not valid epoch milliseconds."""
TIMESTAMP_MILLIS_MAX = 253_402_300_799_999
"""9999-12-31T23:59:59.999Z. A larger number is not valid epoch milliseconds."""

ISO_HYPHENS = (5, 8)
"""Positions of the hyphens in ISO-8601, from 1. Spark alone would also accept '12:00' and 'now'."""

EVENT_TIME_ABOVE_MILLIS = 0
"""An event time at or before this is absurd: Spark's watermark begins there."""
EVENT_TIME_BELOW_MILLIS = TIMESTAMP_MILLIS_MAX + 1
"""An event time at or after this is absurd."""

ABSURD_YEAR = "^([+-][0-9]{4,}|[0-9]{5,})-[0-9]{2}-[0-9]{2}"
"""ISO-8601 with a sign or a year of more than four digits. Valid in Java's and Python's regular
expressions."""

READ_AS = {"TIMESTAMP": "STRING", "TINYINT": "SMALLINT"}
"""Column types whose JSON Spark parses as another type; the job then converts and checks it."""
