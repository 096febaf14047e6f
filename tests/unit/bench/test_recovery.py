"""The table has a row for each killed process."""

from bench.recovery import Recovery, report


def test_table_has_median_and_extremes_of_each_killed_process() -> None:
    text = report([Recovery("JVM", 9.0), Recovery("driver", 11.0), Recovery("JVM", 7.0)])

    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines()]
    assert ["JVM", "2", "8.0", "7.0", "9.0"] in cells
    assert ["driver", "1", "11.0", "11.0", "11.0"] in cells
