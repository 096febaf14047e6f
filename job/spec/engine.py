"""Which of Spark's execution modes runs the join, and the settings of real-time mode."""

from datetime import timedelta
from enum import StrEnum
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict

from job.spec.durations import PositiveDuration

# Spark refuses shorter intervals (spark.sql.streaming.realTimeMode.minBatchDuration, which the plan
# sets to this).
CHECKPOINT_INTERVAL_MIN = timedelta(seconds=1)
# After a crash up to one interval is repeated.
CHECKPOINT_INTERVAL_MAX = timedelta(hours=1)
# A commit takes several milliseconds on an idle machine.
COMMIT_INTERVAL_MIN = timedelta(milliseconds=5)
# Far below the timeout of a transaction.
COMMIT_INTERVAL_MAX = timedelta(minutes=1)


class Engine(StrEnum):
    MICRO_BATCH = "micro_batch"
    REAL_TIME = "real_time"


def _supported_interval(value: timedelta) -> timedelta:
    if not CHECKPOINT_INTERVAL_MIN <= value <= CHECKPOINT_INTERVAL_MAX:
        raise ValueError("must be between 1 second and 1 hour")
    return value


def _supported_commit_interval(value: timedelta) -> timedelta:
    if not COMMIT_INTERVAL_MIN <= value <= COMMIT_INTERVAL_MAX:
        raise ValueError("must be between 5 milliseconds and 1 minute")
    return value


class RealTimeSpec(BaseModel):
    """Settings of `engine: real_time`."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    checkpoint_interval: Annotated[PositiveDuration, AfterValidator(_supported_interval)] = (
        timedelta(minutes=3)
    )
    """Time between two commits of state and offsets. Longer: fewer pauses, more records to
    repeat after a crash."""
    commit_interval: Annotated[PositiveDuration, AfterValidator(_supported_commit_interval)] = (
        timedelta(milliseconds=50)
    )
    """Time between two transactions of a state partition: the longest time that a result waits with
    `delivery: exactly_once`. Shorter: lower latency, more load on the brokers."""

    @property
    def has_commit_interval(self) -> bool:
        """Whether the spec sets `commit_interval`."""
        return "commit_interval" in self.model_fields_set
