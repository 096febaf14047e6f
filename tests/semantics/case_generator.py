"""Hypothesis strategies for joins and their input.

The simplest option is the first of each choice, because hypothesis shrinks towards it.
"""

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import strategies as st

from job.semantics.input_records import records_of_jsonl
from tests.semantics.join_cases import Case, Data, Idle, Restart, Step
from tests.sql_worker import ROWS

EPOCH_MS = 1_700_000_000_000
SCHEMA = "k INT, g STRING, t TIMESTAMP, v INT, s STRING, d DECIMAL(6,2), at TIMESTAMP, "
SCHEMA += "r ARRAY<INT>, q STRUCT<a: INT, b: STRING>"

JOIN_TYPES = ["inner", "left_outer", "right_outer", "full_outer", "left_semi", "left_anti"]
JOIN_TYPES += ["right_semi", "right_anti"]
# The last of each list fail on some records: a string that is not a number, a zero, a large number.
_KEYS = [["k"], ["k"], ["k", "g"], ["k % 2"], ["lower(g)", "k"], ["coalesce(k, 0)"], ["g"]]
_KEYS += [["r"], ["q"], ["q.a", "k"], ["cast(s as int)"], ["k", "6 div v"]]
_FILTERS = ["v > 0", "s <> 'x'", "v % 2 = 0 or s is null", "v > 1000", "s like 'a%'", "d < 1.5"]
_FILTERS += ["k = 1", "k > 0 and v < 4", "g = 'a'", "k in (0, 2)", "k is not null", "g <> 'b'"]
_FILTERS += ["k between 1 and 2", "k % 2 = 0", "g like 'a%' or k = 2", "k = v"]
_FILTERS += ["at > timestamp'2023-11-14 22:13:30'", "cast(v as double) / 2 >= 1"]
_FILTERS += ["cast(s as int) > 5", "6 / v > 2 and k <> 2", "s = 'a' or cast(s as int) > 5"]
_IDS = [["k"], ["v"], ["k", "v"], ["g", "lower(s)"], ["t"], ["d"], ["k is null", "at"]]
_ONE_SIDED = [
    "{0}.v <> 3",
    "{0}.s is not null",
    "{0}.s like 'a%'",
    "{0}.v % 2 = 0",
    "{0}.v in (1, 2)",
    "{0}.k = 1",
    "{0}.g <> 'b'",
    "{0}.k is null",
    "10 / {0}.v > 2",
    "cast({0}.s as int) <> 7",
]
_TWO_SIDED = [
    "left.v < right.v", "left.s <> right.s", "left.s = right.s",
    "left.d <=> right.d", "coalesce(left.v, 0) >= coalesce(right.v, 1)",
    "left.v = 1 or right.v = 1", "case when left.v > 2 then right.v > 2 else true end",
    "concat(left.s, right.s) like '%b%'", "left.k < right.v", "right.k <= left.v",
]  # fmt: skip
_TWO_SIDED_FAILING = [
    "left.v + right.v <> 4", "left.v / right.v > 0.5", "cast(concat(left.s, right.s) as int) > 5",
]  # fmt: skip
_LEFT_COLUMNS = {"lk": "left.k", "lt": "left.t", "lv": "left.v", "ls": "upper(left.s)"}
_LEFT_COLUMNS |= {"ld": "left.d", "late": "left.at"}
_RIGHT_COLUMNS = {"rk": "right.k", "rt": "right.t", "rv": "coalesce(right.v, -1)", "rd": "right.d"}
_LEFT_FAILING = [{}, {"lc": "left.v * 2", "lu": "left.d + 1"}, {"lh": "left.at + interval 1 hour"}]
_LEFT_FAILING += [
    {"lc": "cast(left.s as int)"},
    {"lc": "cast(left.s as int) + 1", "lq": "6 / left.v"},
]
_RIGHT_FAILING = [{}, {}, {"rc": "cast(right.s as int) + left.v"}]
_OUTPUT_FILTERS = ["lv > 2", "lk is not null", "ls <> 'X' or ls is null", "6 / lk > 3"]
_OUTPUT_FILTERS += ["lk > 0 and cast(ls as int) > 5", "left.v * lk > 2"]
_OUTPUT_HEADERS = [{"a": "lk", "b c": "left.t"}, {"a": "upper(ls)"}, {"n": "6 div left.v"}]
_OUTPUT_KEYS = ["lk", "lk", "lk", "6 div left.v"]

# Microseconds after the millisecond of an event time. Watermarks have whole milliseconds.
_MICROS = [0, 0, 0, 0, 1, -1, 999]

_PAUSES = [Idle(), Idle(), Restart(), Restart(True), Restart(True, times_lost=True)]
_BAD_LINES = ["{", "[1]", '{"k": "x"}', '{"k": 1}', '{"k": 1, "t": "soon"}', '{"k": 1, "t": -5}']
_BAD_LINES += ['{"value": null}', '{"k": 1, "t": 1e3}', '{"k": 1.5, "t": 1700000000000}']


@st.composite
def cases(draw: st.DrawFn) -> Case:
    join_type = draw(st.sampled_from(JOIN_TYPES))
    bound, times = draw(_bounds(join_type))
    key = list(draw(st.sampled_from(_KEYS)))
    if bound == {"event_time_in_key": True}:
        key, bound = [*key, "t"], {}
    of_pairs = st.lists(st.booleans(), min_size=len(key), max_size=len(key))
    null_safe = draw(st.one_of(st.booleans(), of_pairs))
    condition = draw(_conditions(join_type))
    spec = {
        "name": "generated",
        "kafka": {"bootstrap_servers": "localhost:9092"},
        **{side: draw(_sides(side, key)) for side in ("left", "right")},
        "join": {"type": join_type, "null_safe": null_safe, **bound, **condition},
        "output": draw(_outputs(join_type)),
        "checkpoint": "./checkpoint",
        "on_bad_record": "drop",
        "on_null_key": draw(st.sampled_from(["pass", "pass", "pass", "drop"])),
    }
    steps = draw(_steps(times))
    for side in [each for each in ("left", "right") if "deduplicate" in spec[each]]:
        steps = [draw(_with_duplicates(step, side)) for step in steps]
    return Case(spec, steps, draw(st.sampled_from([1, 1, 1, 2, 3])))


@st.composite
def _with_duplicates(draw: st.DrawFn, step: Step, side: str) -> Step:
    lines = getattr(step, side, [])
    repeated = draw(st.lists(st.sampled_from(lines), max_size=2)) if lines else []
    return replace(step, **{side: [*lines, *repeated]}) if repeated else step


@st.composite
def pick_cases(draw: st.DrawFn) -> Case:
    """Joins of two streams that pick one match of each left row."""
    case = draw(cases().filter(lambda each: "before" in each.spec["join"].get("match_window", {})))
    window = {"before": "2500 milliseconds", "after": "2500 milliseconds"}
    window |= case.spec["join"]["match_window"]
    join_type = draw(st.sampled_from(["left_outer", "inner"]))
    terms = draw(st.sampled_from([None, None, *_TWO_SIDED, "left.v <> 3", "right.s like 'a%'"]))
    join = {
        "type": join_type,
        "match_window": window,
        "null_safe": case.spec["join"]["null_safe"],
        "pick": draw(st.sampled_from(["latest", "earliest", "nearest"])),
        **({} if terms is None else {"condition": terms}),
    }
    spec = {**case.spec, "join": join, "output": draw(_outputs(join_type))}
    return Case(spec, case.steps, case.partitions)


@st.composite
def table_cases(draw: st.DrawFn) -> Case:
    """Joins of a stream with a table, whose key is in the record or in the value."""
    case = draw(cases())
    table = draw(st.sampled_from(["right", "right", "left"]))
    stream = "left" if table == "right" else "right"
    of_stream = [f"{stream}_{kind}" for kind in ("outer", "semi", "anti")]
    join_type = draw(st.sampled_from(["inner", *of_stream[:1], *of_stream]))
    keys = draw(st.sampled_from(_TABLE_KEYS))
    null_safe = draw(st.sampled_from([False, False, True]))
    condition = draw(_conditions(join_type))
    spec = {
        **case.spec,
        "join": {"type": join_type, "null_safe": null_safe, **condition},
        "output": draw(_outputs(join_type)),
    }
    for side, key in zip((stream, table), keys, strict=True):
        spec[side] = {**spec[side], "key": list(key)}
        spec[side].pop("deduplicate", None)
    version = draw(st.sampled_from(["latest", "as_of", *_TABLES]))
    spec[table]["table"] = version
    if version in _LATEST and draw(st.booleans()):
        del spec[table]["event_time"], spec[table]["watermark_delay"]
    steps = [draw(_with_table_records(step, table)) for step in case.steps]
    return Case(spec, steps, case.partitions)


_TABLE_KEYS = [(["k"], ["cast(record_key as int)"]), (["k"], ["cast(record_key as int)"])]
_TABLE_KEYS += [(["g", "k"], ["g", "try_cast(record_key as int)"]), (["k"], ["k"])]
_TABLES: list[dict[str, str]] = [{"version": "latest", "delete": "v = 0"}]
_TABLES += [{"version": "latest", "delete": "s = 'x'"}, {"version": "as_of", "delete": "v = 0"}]
_TABLES += [{"version": "as_of", "before_first": "first", "delete": "s = 'x'"}]
_TABLES += [{"version": "as_of", "before_first": "none", "retention": "5 seconds"}]
_TABLES += [{"version": "as_of", "final": True}, {"version": "as_of", "final": True}]
_TABLES += [{"version": "as_of", "final": True, "retention": "5 seconds", "delete": "v = 0"}]
WAITS: list[dict[str, str]] = [{"version": "latest", "wait": "5 seconds"}]
WAITS += [{"version": "latest", "wait": "20 seconds", "delete": "v = 0"}]
WAITS += [{"version": "as_of", "wait": "5 seconds", "delete": "v = 0"}]
_TABLES += [*WAITS, *WAITS]
"""Rows of the stream wait, which only micro-batches can."""
_LATEST = ["latest", *_TABLES[:2]]


@st.composite
def _with_table_records(draw: st.DrawFn, step: Step, table: str) -> Step:
    """The step with record keys on the side of the table, and with tombstones."""
    if not isinstance(step, Data):
        return step
    records = [
        {
            "value": record.value if draw(st.integers(0, 4)) else None,
            "partition": record.partition,
            "key": draw(st.sampled_from(["0", "1", "1", "2", None])),
            "timestamp": EPOCH_MS + 2_500 * draw(st.integers(-4, 8)),
        }
        for record in records_of_jsonl(getattr(step, table), ROWS)
    ]
    return replace(step, **{table: [json.dumps(record) for record in records]})


@st.composite
def _bounds(draw: st.DrawFn, join_type: str) -> tuple[dict[str, Any], st.SearchStrategy[int]]:
    """Bounds of the state, and event times (ms, relative) at the edges of these bounds."""
    fine = st.integers(-12_000, 12_000)
    coarse = st.integers(-4, 4).map(lambda n: n * 2_500)
    kinds = ["match_window"] * 4 + ["window", "event_time_in_key"]
    kind = draw(st.sampled_from([*kinds, "unbounded"] if join_type == "inner" else kinds))
    if kind == "event_time_in_key":
        return {"event_time_in_key": True}, coarse
    if kind == "window":
        length = draw(st.sampled_from(["5 seconds", "500 milliseconds", "3 seconds", "1 minute"]))
        offset = draw(st.sampled_from([None, None, "0 seconds", "1 ms", "499 ms"]))
        window = length if offset is None else {"size": length, "offset": offset}
        return {"window": window}, st.one_of(fine, coarse)
    if kind == "unbounded":
        side = draw(st.sampled_from(["before", "after", None]))
        half: dict[str, Any] = {"match_window": {side: "2500 milliseconds"}} if side else {}
        return {"unbounded_state": True, **half}, st.one_of(fine, coarse)
    before, after = draw(
        st.tuples(st.integers(-2, 4), st.integers(-2, 4)).filter(lambda pair: sum(pair) >= 0)
    )
    bounds = {"before": f"{before * 2500} milliseconds", "after": f"{after * 2500} milliseconds"}
    return {"match_window": bounds}, st.one_of(fine, coarse, coarse)


@st.composite
def _sides(draw: st.DrawFn, side: str, key: list[str]) -> dict[str, Any]:
    written = {
        "topic": side,
        "schema": SCHEMA,
        "key": key,
        "event_time": "t",
        "watermark_delay": draw(
            st.sampled_from(["1 millisecond", "2 seconds", "2500 milliseconds", "10 seconds"])
        ),
    }
    if draw(st.integers(0, 3)) == 3:
        written["filter"] = draw(st.sampled_from(_FILTERS))
    if draw(st.integers(0, 3)) == 3:
        written["deduplicate"] = {
            "by": draw(st.sampled_from(_IDS)),
            "within": draw(st.sampled_from(["1 millisecond", "2500 milliseconds", "1 minute"])),
        }
    return written


@st.composite
def _conditions(draw: st.DrawFn, join_type: str) -> dict[str, str]:
    # A semi join refuses a condition that can fail on a pair.
    two_sided = _TWO_SIDED if join_type.endswith("_semi") else [*_TWO_SIDED, *_TWO_SIDED_FAILING]
    parts = draw(st.sampled_from([[], [], [], ["left"], ["right"], ["both"], ["left", "both"]]))
    terms = [
        draw(st.sampled_from(two_sided))
        if part == "both"
        else draw(st.sampled_from(_ONE_SIDED)).format(part)
        for part in parts
    ]
    return {"condition": " and ".join(f"({term})" for term in terms)} if terms else {}


@st.composite
def _outputs(draw: st.DrawFn, join_type: str) -> dict[str, Any]:
    columns = _LEFT_COLUMNS | draw(st.sampled_from(_LEFT_FAILING))
    if not join_type.endswith(("_semi", "_anti")):
        columns |= _RIGHT_COLUMNS | draw(st.sampled_from(_RIGHT_FAILING))
    key = draw(st.sampled_from(_OUTPUT_KEYS))
    output: dict[str, Any] = {"topic": "output", "columns": columns, "key": key}
    output["delivery"] = "exactly_once"
    if draw(st.integers(0, 3)) == 3:
        output["timestamp"] = "event_time"
    if draw(st.integers(0, 3)) == 3:
        output["headers"] = draw(st.sampled_from(_OUTPUT_HEADERS))
    if draw(st.integers(0, 5)) == 5:
        output["filter"] = draw(st.sampled_from(_OUTPUT_FILTERS))
    if join_type in {"right_semi", "right_anti"}:
        output = json.loads(json.dumps(output).replace("left.", "right."))
    return output


@st.composite
def _steps(draw: st.DrawFn, times: st.SearchStrategy[int]) -> list[Step]:
    """Batches whose event times advance by ten seconds each, with rows out of order."""
    steps: list[Step] = []
    moment = EPOCH_MS
    # Delay of the event times of each partition of both topics behind those of the first one.
    lags = [0, *draw(st.lists(st.sampled_from([0, 20_000, 40_000]), max_size=2))]
    for _ in range(draw(st.sampled_from([2, 3, 3, 4]))):
        early = times.map(lambda at: at - 40_000)
        lines = st.sampled_from(list(enumerate(lags))).flatmap(
            lambda lagging, moment=moment, early=early: _lines_of(
                lagging[0],
                st.one_of(times, times, early).map(lambda at: moment - lagging[1] + at),
            )
        )
        left, right = (draw(st.sampled_from([0, 1, 2, 4, 6, 9])) for _ in range(2))
        read = [tuple(draw(_many(lines, count))) for count in (left, right)]
        steps.append(Data(*read, ahead=draw(st.sampled_from([0, 0, 1, 3]))))
        moment += draw(st.sampled_from([10_000, 15_000, 2_500, 30_000]))
        if draw(st.integers(0, 2)) == 2:
            steps.append(draw(st.sampled_from(_PAUSES)))
    return steps


def _many(lines: st.SearchStrategy[str], count: int) -> st.SearchStrategy[list[str]]:
    """A list of a drawn length: by default hypothesis mostly generates short lists."""
    return st.lists(lines, min_size=count, max_size=count)


def _lines_of(partition: int, times: st.SearchStrategy[int]) -> st.SearchStrategy[str]:
    """`_lines` in a partition."""
    return _lines(times).map(lambda line: _placed(line, partition)) if partition else _lines(times)


def _placed(line: str, partition: int) -> str:
    (record,) = records_of_jsonl([line], ROWS)
    return json.dumps({"value": record.value, "partition": partition})


def event_time(at_ms: int, micros: int = 0) -> int | str:
    """An event time in JSON: an integer has only milliseconds."""
    at = datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=at_ms, microseconds=micros)
    return at.isoformat() if micros else at_ms


def _lines(times: st.SearchStrategy[int]) -> st.SearchStrategy[str]:
    row = st.fixed_dictionaries({
        "k": st.sampled_from([0, 1, 1, 2, None]),
        "g": st.sampled_from(["a", "A", "b", None]),
        "t": st.builds(event_time, times, st.sampled_from(_MICROS)),
        "v": st.sampled_from([1, 2, 3, 4, 0, 2_000_000_000, None]),
        "s": st.sampled_from(["7", "5", "a", "ab", "x", None]),
        "d": st.sampled_from([0, 1.5, -2.25, "3.10", None]),
        "r": st.sampled_from([[1], [1], [1, None], [], None]),
        "q": st.sampled_from([{"a": 1}, {"a": 1, "b": "x"}, {"a": None}, None]),
        "at": st.sampled_from([None, "2023-11-14T22:13:30Z", "2023-11-15 01:02:03.456"]),
    })  # fmt: skip
    good = row.map(json.dumps)
    return st.integers(0, 15).flatmap(lambda n: st.sampled_from(_BAD_LINES) if n == 15 else good)
