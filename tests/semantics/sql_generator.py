"""Hypothesis strategies for typed SQL expressions over one table, and for its rows.

It generates the expressions that job/evaluation evaluates exactly.
"""

from datetime import UTC, date, datetime
from decimal import Decimal

from hypothesis import strategies as st

COLUMNS = {
    "b": "BOOLEAN",
    "c": "BOOLEAN",
    "y": "TINYINT",
    "i": "INT",
    "j": "INT",
    "n": "BIGINT",
    "m": "BIGINT",
    "f": "FLOAT",
    "x": "DOUBLE",
    "z": "DOUBLE",
    "p": "DECIMAL(10,2)",
    "q": "DECIMAL(5,4)",
    "s": "STRING",
    "u": "STRING",
    "d": "DATE",
    "e": "DATE",
    "t": "TIMESTAMP",
    "v": "TIMESTAMP",
    "r": "ARRAY<INT>",
}

_EDGES = {
    "TINYINT": (-(2**7), 2**7 - 1),
    "INT": (-(2**31), 2**31 - 1),
    "BIGINT": (-(2**63), 2**63 - 1),
}
_WORDS = ["", "a", "ab", "A_b", "a%b", "bot", " x ", "12", "-7", "1.5", "true", "é", "2024-02-29"]
_WORDS += ["2024-01-01 10:20:30.5", "\\", "x" * 5, "NaN", "2024-1-1T1:2:3+02:00"]
_FLOATS = [0.0, -0.0, 1.5, -2.25, 1e10, -3.0, float("nan"), float("inf"), 0.1, 7.0]
_TIMES = st.datetimes(datetime(1969, 12, 30), datetime(2100, 1, 1)).map(
    lambda at: at.replace(tzinfo=UTC)
)


def _integers(kind: str) -> st.SearchStrategy[int]:
    low, high = _EDGES[kind]
    return st.one_of(st.integers(-5, 5), st.integers(low, high), st.sampled_from([low, high]))


def _decimals(precision: int, scale: int) -> st.SearchStrategy[Decimal]:
    limit = 10**precision - 1
    numbers = st.one_of(st.integers(-500, 500), st.integers(-limit, limit))
    return numbers.map(lambda unscaled: Decimal(unscaled).scaleb(-scale))


VALUES = {
    "BOOLEAN": st.booleans(),
    "TINYINT": _integers("TINYINT"),
    "INT": _integers("INT"),
    "BIGINT": _integers("BIGINT"),
    "FLOAT": st.sampled_from([value for value in _FLOATS if value != 0.1]),
    "DOUBLE": st.one_of(st.sampled_from(_FLOATS), st.floats(-1e6, 1e6)),
    "DECIMAL(10,2)": _decimals(10, 2),
    "DECIMAL(5,4)": _decimals(5, 4),
    "STRING": st.one_of(st.sampled_from(_WORDS), st.text("ab%_ 1é", max_size=6)),
    "DATE": st.dates(date(1969, 12, 1), date(2100, 1, 1)),
    "TIMESTAMP": _TIMES,
    "ARRAY<INT>": st.lists(st.one_of(st.none(), st.integers(-5, 5)), max_size=3),
}

ROWS = st.lists(
    st.fixed_dictionaries({
        name: st.one_of(st.none(), VALUES[kind], VALUES[kind], VALUES[kind])
        for name, kind in COLUMNS.items()
    }),
    min_size=1,
    max_size=8,
)  # fmt: skip

_LITERALS = {
    "BOOLEAN": ["true", "false", "null"],
    "NUMBER": ["0", "1", "-1", "2", "7", "3000000000", "1.5", "0.25", "-10.50", "1e3", "100L"],
    "STRING": ["'a'", "''", "'ab'", "'12'", "' x '", "'2024-01-01'", "'b%'", "'é'", "null"],
    "DATE": ["date'2024-02-29'", "date'1970-01-01'"],
    "TIMESTAMP": ["timestamp'2024-01-31 23:59:59.999999'", "timestamp'1970-01-01 00:00:00'"],
    "INTERVAL": [
        "interval 5 seconds", "interval '1' day", "interval '1 day 2 hours'", "interval 1 week",
        "interval '1:30' minute to second", "interval 500 milliseconds", "-interval 3 minutes",
        "interval '1 02:03:04.5' day to second", "interval '2' hours",
    ],
    "SMALL": ["0", "1", "2", "-1", "3", "-3", "100"],
}  # fmt: skip

_TEMPLATES = {
    "BOOLEAN": [
        "({BOOLEAN} and {BOOLEAN})", "({BOOLEAN} or {BOOLEAN})", "(not {BOOLEAN})",
        "({NUMBER} {CMP} {NUMBER})", "({STRING} {CMP} {STRING})", "({DATE} {CMP} {DATE})",
        "({TIMESTAMP} {CMP} {TIMESTAMP})", "({DATE} {CMP} {TIMESTAMP})",
        "({TIMESTAMP} {CMP} '2024-01-01 00:00:00')", "({INTERVAL} {CMP} {INTERVAL})",
        "({BOOLEAN} {CMP} {BOOLEAN})", "({NUMBER} <=> {NUMBER})", "({STRING} <=> {STRING})",
        "({STRING} is null)", "({NUMBER} is not null)", "({BOOLEAN} is true)",
        "({BOOLEAN} is not false)", "({NUMBER} is distinct from {NUMBER})",
        "({NUMBER} between {NUMBER} and {NUMBER})", "({STRING} not between {STRING} and {STRING})",
        "({NUMBER} in ({NUMBER}, {NUMBER}, null))", "({STRING} in ('a', 'ab', {STRING}))",
        "({STRING} not in ('a', 'bot'))", "({STRING} like 'a%')", "({STRING} not like '_b%')",
        "({STRING} like '%\\\\_b')", "startswith({STRING}, {STRING})", "contains({STRING}, 'a')",
        "endswith({STRING}, {STRING})", "isnan({DOUBLE})", "coalesce({BOOLEAN}, {BOOLEAN})",
        "if({BOOLEAN}, {BOOLEAN}, {BOOLEAN})", "try_cast({STRING} as boolean)",
        "({TIMESTAMP} between {TIMESTAMP} and {TIMESTAMP} + {INTERVAL})",
        "({INTEGER} = {STRING})", "cast({NUMBER} as boolean)", "array_contains(r, {SMALL})",
    ],
    "INTEGER": [
        "({INTEGER} + {INTEGER})", "({INTEGER} - {INTEGER})", "({INTEGER} * {INTEGER})",
        "({INTEGER} % {INTEGER})", "({INTEGER} div {INTEGER})", "(- {INTEGER})", "abs({INTEGER})",
        "length({STRING})", "instr({STRING}, {STRING})", "try_cast({STRING} as int)",
        "try_cast({NUMBER} as tinyint)", "cast({BOOLEAN} as int)", "cast({TIMESTAMP} as bigint)",
        "year({DATE})", "month({DATE})", "day({TIMESTAMP})", "dayofweek({DATE})",
        "hour({TIMESTAMP})", "minute({TIMESTAMP})", "second({TIMESTAMP})",
        "datediff({DATE}, {DATE})", "unix_millis({TIMESTAMP})", "unix_seconds({TIMESTAMP})",
        "coalesce({INTEGER}, {INTEGER})", "nvl({INTEGER}, 0)", "nullif({INTEGER}, {INTEGER})",
        "greatest({INTEGER}, {INTEGER})", "least({INTEGER}, {INTEGER}, 3)",
        "case when {BOOLEAN} then {INTEGER} when {BOOLEAN} then {INTEGER} end",
        "case {INTEGER} when 1 then {INTEGER} else 0 end", "ceil({DOUBLE})", "floor({DOUBLE})",
        "hash({INTEGER}, {STRING}, {DOUBLE})", "hash({DECIMAL}, {DATE}, {TIMESTAMP})",
        "crc32({STRING})", "cast({DECIMAL} as int)", "ceil({INTEGER})",
        "try_add({INTEGER}, {INTEGER})", "try_subtract({INTEGER}, {INTEGER})",
        "try_multiply({INTEGER}, {INTEGER})", "try_mod({INTEGER}, {INTEGER})", "size(r)",
        "r[{SMALL}]", "element_at(r, {SMALL})", "try_element_at(r, {SMALL})",
    ],
    "DOUBLE": [
        "({DOUBLE} + {DOUBLE})", "({DOUBLE} - {NUMBER})", "({DOUBLE} * {DOUBLE})",
        "({DOUBLE} / {NUMBER})", "({INTEGER} / {INTEGER})", "({DOUBLE} % {DOUBLE})",
        "(- {DOUBLE})", "abs({DOUBLE})", "sqrt({DOUBLE})", "sign({NUMBER})",
        "try_cast({STRING} as double)", "cast({INTEGER} as double)", "cast({DECIMAL} as double)",
        "nanvl({DOUBLE}, {DOUBLE})", "greatest({DOUBLE}, {DOUBLE})", "least({DOUBLE}, {NUMBER})",
        "coalesce({DOUBLE}, {INTEGER})", "if({BOOLEAN}, {DOUBLE}, {INTEGER})",
        "cast({TIMESTAMP} as double)", "try_divide({DOUBLE}, {NUMBER})",
        "try_divide({INTEGER}, {INTEGER})", "try_add({DOUBLE}, {INTEGER})",
    ],
    "DECIMAL": [
        "({DECIMAL} + {DECIMAL})", "({DECIMAL} - {INTEGER})", "({DECIMAL} * {DECIMAL})",
        "({DECIMAL} / {DECIMAL})", "({DECIMAL} % {DECIMAL})", "({DECIMAL} * {SMALL})",
        "(- {DECIMAL})", "abs({DECIMAL})", "cast({INTEGER} as decimal(20,0))",
        "cast({DECIMAL} as decimal(10,1))", "try_cast({STRING} as decimal(6,2))",
        "round({DECIMAL})", "round({DECIMAL}, 1)", "coalesce({DECIMAL}, 0)",
        "greatest({DECIMAL}, {DECIMAL})", "ceil({DECIMAL})", "floor({DECIMAL})",
        "try_add({DECIMAL}, {DECIMAL})", "try_multiply({DECIMAL}, {DECIMAL})",
        "try_divide({DECIMAL}, {DECIMAL})", "try_mod({DECIMAL}, {DECIMAL})",
    ],
    "STRING": [
        "lower({STRING})", "upper({STRING})", "trim({STRING})", "ltrim({STRING})",
        "rtrim({STRING})", "concat({STRING}, {STRING})", "({STRING} || {STRING})",
        "concat_ws('-', {STRING}, {STRING})", "concat({STRING}, {INTEGER})",
        "substring({STRING}, {SMALL}, {SMALL})", "substr({STRING}, {SMALL})",
        "replace({STRING}, 'a', {STRING})", "left({STRING}, {SMALL})", "right({STRING}, {SMALL})",
        "lpad({STRING}, 5, 'xy')", "rpad({STRING}, {SMALL}, 'z')", "reverse({STRING})",
        "md5({STRING})", "sha2({STRING}, 256)", "base64(cast({STRING} as binary))",
        "coalesce({STRING}, 'none')", "nullif({STRING}, {STRING})",
        "if({BOOLEAN}, {STRING}, {STRING})", "greatest({STRING}, {STRING})",
        "case when {BOOLEAN} then {STRING} else {STRING} end", "cast({INTEGER} as string)",
        "cast({BOOLEAN} as string)", "cast({DATE} as string)", "cast({TIMESTAMP} as string)",
        "cast({DECIMAL} as string)", "cast({DOUBLE} as string)",
    ],
    "DATE": [
        "date_add({DATE}, {SMALL})", "date_sub({DATE}, {SMALL})", "to_date({TIMESTAMP})",
        "cast({TIMESTAMP} as date)", "try_cast({STRING} as date)", "coalesce({DATE}, {DATE})",
        "greatest({DATE}, {DATE})", "try_to_date({STRING})",
    ],
    "TIMESTAMP": [
        "({TIMESTAMP} + {INTERVAL})", "({TIMESTAMP} - {INTERVAL})",
        "({TIMESTAMP} + interval 1 month)", "({TIMESTAMP} - interval '1-2' year to month)",
        "cast({DATE} as timestamp)", "try_cast({STRING} as timestamp)",
        "date_trunc('HOUR', {TIMESTAMP})", "date_trunc('WEEK', {TIMESTAMP})",
        "date_trunc('MONTH', {TIMESTAMP})", "date_trunc('YEAR', {TIMESTAMP})",
        "date_trunc('MINUTE', {TIMESTAMP})", "date_trunc('DAY', {TIMESTAMP})",
        "timestamp_millis({INTEGER})", "timestamp_seconds({SMALL})",
        "coalesce({TIMESTAMP}, {TIMESTAMP})", "least({TIMESTAMP}, {TIMESTAMP})",
        "if({BOOLEAN}, {TIMESTAMP}, {DATE})", "try_to_timestamp({STRING})",
        "try_add({TIMESTAMP}, {INTERVAL})", "try_subtract({TIMESTAMP}, {INTERVAL})",
    ],
    "INTERVAL": ["({TIMESTAMP} - {TIMESTAMP})", "({INTERVAL} + {INTERVAL})"],
}  # fmt: skip

_KINDS = {
    "BOOLEAN": ("BOOLEAN",),
    "INTEGER": ("TINYINT", "INT", "BIGINT"),
    "DOUBLE": ("DOUBLE", "FLOAT"),
    "DECIMAL": ("DECIMAL(10,2)", "DECIMAL(5,4)"),
    "STRING": ("STRING",),
    "DATE": ("DATE",),
    "TIMESTAMP": ("TIMESTAMP",),
    "INTERVAL": (),
}
_NUMBERS = ("INTEGER", "DOUBLE", "DECIMAL")


@st.composite
def expressions(draw: st.DrawFn, kind: str | None = None, depth: int = 3) -> str:
    """One expression of `kind`; by default of any kind."""
    if kind is None:
        kind = draw(st.sampled_from([name for name in _TEMPLATES if name != "INTERVAL"]))
    if kind == "CMP":
        return draw(st.sampled_from(["=", "<>", "<", "<=", ">", ">="]))
    if kind == "SMALL":
        return draw(st.sampled_from(_LITERALS["SMALL"]))
    if kind == "NUMBER":
        kind = draw(st.sampled_from(_NUMBERS))
    if depth == 0 or draw(st.integers(0, 3)) == 0:
        return draw(_leaf(kind))
    text = draw(st.sampled_from(_TEMPLATES[kind]))
    while "{" in text:
        before, _, rest = text.partition("{")
        slot, _, after = rest.partition("}")
        text = before + draw(expressions(slot, depth - 1)) + after
    return text


def _leaf(kind: str) -> st.SearchStrategy[str]:
    columns = [name for name, sql_type in COLUMNS.items() if sql_type in _KINDS[kind]]
    literals = _LITERALS.get(kind, _LITERALS["NUMBER"] if kind in _NUMBERS else [])
    if kind == "INTEGER":
        literals = [text for text in literals if "." not in text and "e" not in text]
    if kind == "DECIMAL":
        literals = [text for text in literals if "." in text]
    if kind == "DOUBLE":
        literals = ["1e3", "-0.5e0", "0e0"]
    return st.sampled_from([*columns, *columns, *literals])
