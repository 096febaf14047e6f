"""The table of rates compares each dataflow with the first one."""

from bench.rounds import report


def test_table_has_median_extremes_and_the_ratio_to_the_first_dataflow() -> None:
    text = report({"JSON": [100.0, 300.0, 200.0], "Avro": [500.0]}, subject="format", unit="rows")

    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines()[1:]]
    assert ["format", "rows per CPU-second", "lowest", "highest", "of JSON"] in cells
    assert ["JSON", "200", "100", "300", "1.00"] in cells
    assert ["Avro", "500", "500", "500", "2.50"] in cells
