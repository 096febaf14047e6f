"""Which of Spark's execution modes runs the join, and the settings of real-time mode."""

from datetime import timedelta
from enum import StrEnum
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict

from job.join_spec.durations import PositiveDuration

# Spark refuses shorter intervals (spark.sql.streaming.realTimeMode.minBatchDuration, which the plan
# sets to this).
CHECKPOINT_INTERVAL_MIN = timedelta(seconds=1)
# A crash repeats the results of up to one interval.
CHECKPOINT_INTERVAL_MAX = timedelta(hours=1)


class Engine(StrEnum):
    MICRO_BATCH = "micro_batch"
    REAL_TIME = "real_time"


def _supported_interval(value: timedelta) -> timedelta:
    if not CHECKPOINT_INTERVAL_MIN <= value <= CHECKPOINT_INTERVAL_MAX:
        raise ValueError("must be between 1 second and 1 hour")
    return value


class RealTimeSpec(BaseModel):
    """Settings of `engine: real_time`."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    experimental: bool = False
    """Whether the user accepts that this version tests the engine less than `micro_batch`. Required
    to be true."""
    checkpoint_interval: Annotated[PositiveDuration, AfterValidator(_supported_interval)] = (
        timedelta(minutes=1)
    )
    """Time between two commits of state and offsets. Longer: fewer pauses, more results repeated
    after a crash, later unmatched rows."""
