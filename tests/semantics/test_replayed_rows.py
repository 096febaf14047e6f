"""Conditions of a replay on rows whose event times have microseconds."""

import pytest
from pyspark.sql import SparkSession

from job.dataflow import replay_sql
from job.dataflow.replayed import without_kept_back
from job.replay.cut import LateBelow
from job.replay.replay import Expired, expired_before
from tests.unit.replay.test_replay import REPLAY
from tests.unit.specs import plan

WATERMARK_MS = 60_000
ROWS = "SELECT timestamp_micros({micros}) AS left_shown_at, 12L AS position_left, "


@pytest.mark.parametrize(
    ("after_watermark_us", "was_not_late"), [(-1, False), (0, False), (1, True), (999, True)]
)
def test_row_was_late_up_to_the_watermark(
    spark: SparkSession, after_watermark_us: int, was_not_late: bool
) -> None:
    replay = REPLAY.model_copy(update={"late": (LateBelow(REPLAY.ends, WATERMARK_MS),)})
    condition = replay_sql.was_not_late(replay, plan(), "left")

    rows = ROWS.format(micros=WATERMARK_MS * 1000 + after_watermark_us) + "1 AS position_right"
    assert was_not_late is spark.sql(rows).selectExpr(condition).first()[0]  # type: ignore[index]


@pytest.mark.parametrize("is_changed_again", [False, True])
@pytest.mark.parametrize(
    ("before_watermark_us", "was_emitted"),
    [(5_001_000, True), (5_000_999, False), (5_000_000, False)],
)
def test_row_expires_at_the_first_whole_millisecond_after_it_was_kept(
    spark: SparkSession, before_watermark_us: int, was_emitted: bool, is_changed_again: bool
) -> None:
    expired = Expired("left", kept_ms=5_000)
    replay = REPLAY.model_copy(update={"expired": (expired,)})
    later = REPLAY.model_copy(update={"ends": {"left": {}, "right": {}}, "watermark_ms": 0})
    if is_changed_again:
        replay = later.model_copy(update={"expired": expired_before(replay, ["left"])})
    condition = replay_sql.kept_back(replay, plan())
    assert condition is not None

    micros = WATERMARK_MS * 1000 - before_watermark_us
    rows = ROWS.format(micros=micros) + "cast(null AS BIGINT) AS position_right"
    assert was_emitted is spark.sql(rows).selectExpr(condition).first()[0]  # type: ignore[index]


@pytest.mark.parametrize(
    ("event_time", "was_emitted"), [("21:59:59.999", True), ("22:00:00", False)]
)
def test_row_expires_at_the_end_of_the_local_day_of_the_old_window(
    spark: SparkSession, event_time: str, was_emitted: bool
) -> None:
    day_ms = 86_400_000
    midnight_ms = 1_711_922_400_000  # 2024-04-01T00:00:00+02:00
    expired = Expired(
        "left",
        window_ms=(day_ms, 0),
        window_time_zone="Europe/Copenhagen",
        watermark_ms=midnight_ms,
    )
    replay = REPLAY.model_copy(update={"expired": (expired,)})
    row = f"timestamp'2024-03-31 {event_time}Z' AS left_shown_at, 12L AS position_left"
    rows = spark.sql(f"SELECT {row}, cast(null AS BIGINT) AS position_right")

    assert was_emitted is without_kept_back(rows, plan(), replay).isEmpty()
