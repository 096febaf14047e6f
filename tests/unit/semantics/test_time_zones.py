"""Time zones of the sides and of the tumbling windows, in plan and simulation."""

import json
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from job.errors import SpecError
from job.plan.explain import explained
from job.plan.fingerprint import fingerprint
from job.semantics.input_records import records_of_jsonl
from job.semantics.simulated_side import SideReader
from tests.sql_worker import ROWS
from tests.unit.semantics.simulations import plan, run, values

SHANGHAI = {"left__time_zone": "Asia/Shanghai", "join__type": "inner"}
DAYS = {"size": "1 day", "time_zone": "Europe/Copenhagen"}
HOUR_MS = 3_600_000
T = 1_709_287_200_000
"""2024-03-01T10:00:00Z."""


def at(k, text, **more):
    return json.dumps({"k": k, "t": text, "v": 0, **more})


def results(made, left, right):
    return [result for batch in values(run(made, left, right)) for result in batch]


def in_windows(window, **changes):
    return plan(join={"type": "inner", "window": window, **changes})


def window_ends(window, times):
    """The end of the window of each time, in UTC."""
    reader = SideReader(in_windows(window), "left", ROWS)
    rows = list(reader.read(records_of_jsonl([at(1, time) for time in times], ROWS)))
    reader.close()
    return [f"{datetime.fromtimestamp(row.late_time_us / 1e6, UTC):%Y-%m-%dT%H:%M}" for row in rows]


def problem_of(**changes):
    with pytest.raises(SpecError) as error:
        plan(**changes)
    [problem] = error.value.problems
    return problem.field, problem.message


def test_text_without_offset_is_a_time_of_the_side():
    left = [at(1, "2024-03-01 18:00:05"), at(2, "2024-03-01T10:00:05Z"), at(3, T)]
    right = [at(k, "2024-03-01 10:00:03") for k in (1, 2, 3)]

    assert [] == results(plan(join__type="inner"), left[:1], right)
    wide = {"before": "5 s", "after": "5 s"}
    found = results(plan(**SHANGHAI, join__match_window=wide), left, right)
    assert [1, 2, 3] == [result["k"] for result in found]


def test_all_times_of_a_record_are_in_the_zone_of_the_side():
    made = plan(
        **SHANGHAI,
        left__schema="k INT, t TIMESTAMP, v INT, first TIMESTAMP, second TIMESTAMP",
        output__columns={"k": "left.k", "first": "left.first", "second": "left.second"},
    )
    left = [at(1, "2024-03-01T18:00:00", first="2024-03-01T09:30:00,5", second="2024-03-01T07:00Z")]

    [found] = results(made, left, [at(1, "2024-03-01T10:00:00")])
    times = {"first": "2024-03-01T01:30:00.500Z", "second": "2024-03-01T07:00:00.000Z"}
    assert {"k": 1, **times} == found


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("hour(t)", 18),
        ("cast(t as string)", "2024-03-01 18:00:00"),
        ("date_format(date_trunc('day', t), 'dd HH')", "01 00"),
        ("unix_millis(cast(s as timestamp))", T - 8 * HOUR_MS),
        ("unix_millis(to_timestamp(s, 'yyyy-MM-dd HH:mm:ss'))", T - 8 * HOUR_MS),
        ("unix_millis(timestamp'2024-03-01 10:00:00')", T - 8 * HOUR_MS),
        ("unix_millis(timestamp'2024-03-01 10:00:00+01:00')", T - HOUR_MS),
        ("unix_millis(cast(date'2024-03-01' as timestamp))", T - 18 * HOUR_MS),
        ("hour(transform(array(t), x -> x + interval 1 hour)[0])", 19),
        ("if(t = '2024-03-01 18:00:00', 'local', 'utc')", "local"),
        ("hour(to_utc_timestamp(s, 'Asia/Tokyo'))", 1),
    ],
)
def test_expressions_of_a_side_are_evaluated_in_its_time_zone(expression, value):
    made = plan(**SHANGHAI, left__filter=f"({expression}) = {value!r}")

    record = at(1, T, s="2024-03-01 10:00:00")
    assert [1] == [result["k"] for result in results(made, [record], [at(1, T)])]


def test_expressions_of_join_and_output_are_evaluated_in_utc():
    made = plan(
        **SHANGHAI, join__condition="hour(left.t) = 10", output__columns={"h": "hour(left.t)"}
    )

    assert [{"h": 10}] == results(made, [at(1, "2024-03-01 18:00:00")], [at(1, T)])


def test_computed_columns_and_event_time_are_evaluated_in_the_time_zone_of_their_side():
    made = plan(
        **SHANGHAI,
        left__schema="k INT, s STRING",
        left__columns={"at": "try_to_timestamp(s, 'dd/MM/yyyy HH:mm:ss')", "h": "hour(at)"},
        left__event_time="at - interval 1 hour",
        left__filter="h > 12 and exists(array(h), x -> x = 19)",
        join__condition="left.h = 19 and hour(left.at) = 11",
        output__columns={"h": "left.h", "utc": "left.at"},
    )

    left = [json.dumps({"k": 1, "s": "01/03/2024 19:00:00"})]
    expected = {"h": 19, "utc": "2024-03-01T11:00:00.000Z"}
    assert [expected] == results(made, left, [at(1, T)])


def test_key_and_duplicates_follow_the_time_zone_of_their_side():
    hours, seconds = (
        {f"{side}__key": [part] for side in ("left", "right")} for part in ("hour(t)", "second(t)")
    )
    by = {"by": ["date_trunc('day', t)"], "within": "1 day"}
    made = plan(**SHANGHAI, **hours, output__columns={"v": "left.v"})
    left = [at(1, "2024-03-01 00:00:01"), at(2, "2024-03-01 23:00:01")]

    assert [] == results(made, left, [at(1, "2024-02-29T16:00:02Z")])
    shifted = plan(**SHANGHAI, **seconds, right__time_zone="+08:00", left__deduplicate=by)
    found = results(shifted, left, [at(1, "2024-03-01 00:00:01"), at(2, "2024-03-01 23:00:01")])
    assert [1] == [result["k"] for result in found]


def test_filter_that_depends_on_the_time_zone_applies_to_its_side_only():
    keys = {
        "left__key": ["t"],
        "right__key": ["t"],
        "join__match_window": {"before": "0 s", "after": "0 s"},
    }
    with_filter = {"left__filter": "t > '2024-03-01 12:00:00' and k > 0"}

    assert plan(join__type="inner", **keys, **with_filter).right.mirrored
    assert () == plan(**SHANGHAI, **keys, **with_filter).right.mirrored


@pytest.mark.parametrize(
    ("name", "remedy"),
    [
        ("asia/shanghai", "did you mean Asia/Shanghai?"),
        ("Copenhagen", "did you mean Europe/Copenhagen?"),
        ("Europe/Kopenhagen", "did you mean Europe/Copenhagen?"),
        ("+8", "an offset from UTC such as +08:00"),
        ("+19:00", "an offset from UTC such as +08:00"),
        ("PST", "write an IANA name"),
    ],
)
def test_unknown_time_zone_has_a_remedy(name, remedy):
    field, message = problem_of(left__time_zone=name)

    assert "left.time_zone" == field
    assert remedy in message
    assert (
        "join.window.time_zone"
        == problem_of(join={"type": "inner", "window": {**DAYS, "time_zone": name}})[0]
    )


@pytest.mark.parametrize("changes", [{"size": "12 hours"}, {"offset": "23 hours"}])
def test_calendar_window_has_whole_days(changes):
    with pytest.raises(SpecError, match="write a whole number of days"):
        in_windows({**DAYS, **changes})


def test_window_ends_at_the_next_local_midnight_when_clocks_change():
    ends = window_ends(
        DAYS,
        [
            "2024-03-30T00:30:00+01:00",
            *("2024-03-31T00:00:00+01:00", "2024-03-31T23:59:59.999+02:00"),
            "2024-04-01T00:00:00+02:00",
            *("2024-10-27T00:00:00+02:00", "2024-10-27T23:59:59.999+01:00"),
        ],
    )

    assert ends == [
        "2024-03-30T23:00",
        *["2024-03-31T22:00"] * 2,
        "2024-04-01T22:00",
        *["2024-10-27T23:00"] * 2,
    ]


def test_day_without_midnight_begins_with_its_first_moment():
    window = {"size": "1 day", "time_zone": "Africa/Cairo"}

    ends = window_ends(window, ["2024-04-25T23:59:59+02:00", "2024-04-26T01:00:00+03:00"])
    assert ["2024-04-25T22:00", "2024-04-26T21:00"] == ends


@pytest.mark.parametrize("zone", ["America/Havana", "Pacific/Apia"])
def test_windows_are_the_calendar_days_of_the_zone(zone):
    start = datetime(2011, 1, 1, 0, 30, tzinfo=UTC)
    times = [start + timedelta(hours=7 * number) for number in range(1_251)]

    ends = window_ends({"size": "1 day", "time_zone": zone}, [time.isoformat() for time in times])
    by_day = {}
    for time, end in zip(times, ends, strict=True):
        by_day.setdefault(time.astimezone(ZoneInfo(zone)).date(), set()).add(end)
        assert end > f"{time:%Y-%m-%dT%H:%M}"
    assert {1} == {len(each) for each in by_day.values()}
    assert len(by_day) == len(set(ends))


def test_weeks_begin_on_the_day_of_the_offset():
    week = {"size": "7 days", "offset": "4 days", "time_zone": "Europe/Copenhagen"}

    sunday, monday = window_ends(week, ["2024-03-31T23:00:00+02:00", "2024-04-01T00:00:00+02:00"])
    assert ("2024-03-31T22:00", "2024-04-07T22:00") == (sunday, monday)


def test_pairs_of_a_local_day_match_and_others_leave_at_its_end():
    made = in_windows(DAYS, type="left_outer")
    left = [at(1, "2024-03-30T00:30:00+01:00"), at(2, "2024-04-01T00:30:00+02:00")]
    right = [at(1, "2024-03-30T23:30:00+01:00"), at(2, "2024-04-01T23:30:00+02:00")]

    assert [1, 2] == [result["k"] for result in results(made, left, right) if result["rv"] == 0]
    end, ms = "2024-03-31T22:00:10Z", "2024-03-31T22:00:09.999Z"
    for newest, unmatched in ((ms, []), (end, [{"k": 1, "v": 0, "rv": None}])):
        batches = run(
            made,
            [at(1, "2024-03-31T00:00:00+01:00"), at(9, newest)],
            [at(8, newest)],
        )
        assert unmatched == values(batches)[-1]


def test_plan_shows_time_zone_and_longest_day():
    made = plan(
        join={"type": "inner", "window": DAYS},
        left__time_zone="Asia/Shanghai",
        left__expected_rate=1,
    )

    assert timedelta(hours=25) == made.left.retention == made.right.retention
    assert "calendar days of Europe/Copenhagen" in explained(made)
    assert "the end of its window (up to 1 day 1 hour long; " in explained(made)
    assert "times without an offset: Asia/Shanghai" in explained(made)
    frozen = fingerprint(made)
    assert "1 day, time zone Europe/Copenhagen" == frozen["join.window"]
    assert "Asia/Shanghai" == frozen["left.time_zone"]
    assert "right.time_zone" not in frozen
