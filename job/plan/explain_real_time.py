"""Lines of `streamjoin plan` about `engine: real_time`: pairs of a name and a text."""

from collections.abc import Iterator

from job.plan.plan import JoinPlan
from job.plan.real_time import (
    BEHIND_LONGEST,
    BEHIND_MAX,
    CATCH_UP_MIN,
    CAUGHT_UP_BATCH,
    CAUGHT_UP_BATCHES,
    CAUGHT_UP_RECORDS,
    RECORDS_BEHIND_MAX,
    RealTimePlan,
)
from job.spec.durations import duration_text
from job.spec.output import Delivery
from job.spec.sides import SIDES

Line = tuple[str, str]


def engine_lines(plan: JoinPlan, real_time: RealTimePlan) -> Iterator[Line]:
    interval = duration_text(real_time.checkpoint_interval)
    yield "engine", "real_time: Spark processes each row on arrival, without waiting for a batch"
    yield "interval", f"{interval}: state and offsets are committed at the end of each interval."
    yield "", "Results of the interval are visible before that. Between two intervals no"
    yield "", "record is read for some hundred milliseconds"
    yield "watermark", "advances twice a second, also within an interval: an unmatched row is"
    yield "", "emitted up to two seconds after the watermark allows it"
    yield "backlog", "read in micro-batches, by the same query on the same checkpoint. The query"
    yield "", "starts with micro-batches. It changes to real time when a batch takes at most"
    within, total = duration_text(CAUGHT_UP_BATCH), duration_text(CAUGHT_UP_BATCHES)
    yield (
        "",
        f"{within} and leaves at most {CAUGHT_UP_RECORDS:,} records unread, or when the batches",
    )
    yield "", f"that leave so few have taken {total} in total. It changes back, for at least"
    least, behind = duration_text(CATCH_UP_MIN), duration_text(BEHIND_MAX)
    yield (
        "",
        f"{least}, when an interval leaves more than {RECORDS_BEHIND_MAX:,} records unread, and",
    )
    is_interrupted = plan.output.delivery is Delivery.EXACTLY_ONCE
    longest = f" or for {duration_text(BEHIND_LONGEST)}" if is_interrupted else ""
    yield "", f"more than the topics receive in {behind}, at its end{longest}"
    yield "slots", "one task slot for each partition of both topics, and one for each of the"
    yield "", f"{plan.state_partitions} state partitions, all at the same time: `streamjoin check`"
    yield "", "prints the number. With a local master the job sets them; a cluster must have"
    yield "", "as many cores, and one more for lookups"
    yield from _crash_lines(plan, real_time)
    yield from _stop_lines(plan.output.delivery)


def _crash_lines(plan: JoinPlan, real_time: RealTimePlan) -> Iterator[Line]:
    interval = real_time.checkpoint_interval
    yield "crash", f"the next start reads the records of up to {duration_text(interval)} again."
    left, right = (plan.side(side).expected_rate for side in SIDES)
    if left is None or right is None:
        yield "", "Set expected_rate on both sides for their number"
    else:
        records = round((left + right) * interval.total_seconds())
        yield "", f"At the expected rates these are {records:,} records"


def _stop_lines(delivery: Delivery) -> Iterator[Line]:
    if delivery is Delivery.EXACTLY_ONCE:
        yield "stop or restart", "interrupts the interval at once, and so does pause. The next"
        yield "", "start repeats the interval without the results that are already written"
        return
    yield "stop or restart", "waits for the end of the interval, at most STREAMJOIN_GRACE_SECONDS,"
    yield "", "and so does pause. The next start repeats an interval that was interrupted"


def transaction_lines(plan: JoinPlan, real_time: RealTimePlan) -> Iterator[Line]:
    interval = duration_text(real_time.commit_interval)
    yield "transactions", f"one per state partition ({plan.state_partitions}) every {interval} if"
    yield "", "there are results, and one at the end of an interval or of a batch of the"
    yield "", "backlog. A result is visible when its transaction is committed"


def at_least_once_lines(real_time: RealTimePlan) -> Iterator[Line]:
    interval = duration_text(real_time.checkpoint_interval)
    yield "at least once", "no result is lost. A crash, or a stop that interrupts an interval,"
    yield "", f"repeats the results of up to {interval}, with the same streamjoin-id"


def dead_letter_lines(topic: str, delivery: Delivery) -> Iterator[Line]:
    yield "dead letters", f"in topic {topic}: original key, value and headers, with the reason in"
    yield "", "headers __streamjoin.errors.*. They are written with the results."
    if delivery is Delivery.EXACTLY_ONCE:
        yield "", "Each is written once, for consumers with isolation.level=read_committed"
    else:
        yield "", "None is lost; after a failure some may be written twice"
