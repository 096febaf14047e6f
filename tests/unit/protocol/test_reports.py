"""Offsets while an interval of real-time mode runs."""

from job.protocol.reports import BrokerReport, SideOffsets

LEFT = SideOffsets(topic="l", read={0: 10, 1: 20}, latest={0: 20, 1: 50})
RIGHT = SideOffsets(topic="r", read={0: 5}, latest={0: 5})
OUTPUT = SideOffsets(topic="o")


def test_lag_is_that_behind_what_a_running_interval_has_read() -> None:
    report = BrokerReport(left=LEFT, right=RIGHT, output=OUTPUT)
    # The brokers were polled before the interval has read the last records of the right side.
    live = report.with_read({"left": {0: 15, 1: 35}, "right": {0: 9}})

    assert {0: 5, 1: 15} == live.left.behind_latest
    assert {0: 0} == live.right.behind_latest
    assert report == report.with_read(None)


def test_records_that_were_deleted_before_they_were_read_are_no_lag() -> None:
    deleted = LEFT.model_copy(update={"earliest": {0: 14, 1: 60}})

    assert {0: 6, 1: 0} == deleted.behind_latest
    assert {0: -4, 1: -40} == deleted.retention_headroom
