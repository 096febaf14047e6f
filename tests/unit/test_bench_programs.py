"""The programs that can be measured get the workload's own join."""

from datetime import timedelta
from pathlib import Path

from bench.load import WORKLOADS
from bench.programs import Task, join_spec
from job.spec import Delivery, spec_from_yaml

INNER = WORKLOADS["inner"]


def test_the_spec_says_what_the_workload_expects() -> None:
    task = Task(INNER, "127.0.0.1:9092", "shown", "clicked", "out")

    spec = spec_from_yaml(join_spec(task, Path("/checkpoint"), Delivery.EXACTLY_ONCE), {})

    assert ("shown", "clicked", "out") == (spec.left.topic, spec.right.topic, spec.output.topic)
    assert Delivery.EXACTLY_ONCE is spec.output.delivery
    assert spec.join.match_window is not None
    assert timedelta(0) == spec.join.match_window.before
    assert timedelta(milliseconds=INNER.match_window_ms) == spec.join.match_window.after
    delay = timedelta(milliseconds=INNER.watermark_delay_ms)
    assert (delay, delay) == (spec.left.watermark_delay, spec.right.watermark_delay)
