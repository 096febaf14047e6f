"""Offsets while an interval of real-time mode runs."""

from job.protocol.reports import BrokerReport, SideOffsets

LEFT = SideOffsets(topic="l", read={0: 10, 1: 20}, latest={0: 20, 1: 50})
RIGHT = SideOffsets(topic="r", read={0: 5}, latest={0: 5})
OUTPUT = SideOffsets(topic="o")


def test_rows_of_a_running_interval_shorten_the_lag_of_each_partition_by_its_share() -> None:
    report = BrokerReport(left=LEFT, right=RIGHT, output=OUTPUT).with_rows_read(
        {"left": 20, "right": 3}
    )

    assert {0: 5, 1: 15} == report.left.behind_latest
    assert {0: 0} == report.right.behind_latest


def test_lag_is_never_negative_and_stays_without_an_interval() -> None:
    report = BrokerReport(left=LEFT, right=RIGHT, output=OUTPUT)

    assert {0: 0, 1: 0} == report.with_rows_read({"left": 99}).left.behind_latest
    assert report == report.with_rows_read({})


def test_records_that_were_deleted_before_they_were_read_are_no_lag() -> None:
    deleted = LEFT.model_copy(update={"earliest": {0: 14, 1: 60}})

    assert {0: 6, 1: 0} == deleted.behind_latest
    assert {0: -4, 1: -40} == deleted.retention_headroom
