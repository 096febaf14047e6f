"""The report of an idle job compares its first and its last minutes."""

from bench.idle import Minute, report

MIB = 2**20


def test_table_has_cores_and_memory_of_the_first_and_the_last_quarter() -> None:
    minutes = [
        Minute(12.0, 1_000 * MIB, 0.4),
        Minute(6.0, 1_010 * MIB, 0.0),
        Minute(3.0, 1_020 * MIB, 0.0),
        Minute(3.0, 1_050 * MIB, 0.0),
    ]

    text = report(minutes)

    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines()]
    assert ["first quarter", "0.200", "0.200", "1,000 [1,000-1,000]", "0.40"] in cells
    assert ["last quarter", "0.050", "0.050", "1,050 [1,050-1,050]", "0.00"] in cells
    assert ["all", "0.100", "0.200", "1,015 [1,000-1,050]", "0.10"] in cells
