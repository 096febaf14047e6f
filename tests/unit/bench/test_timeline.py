"""The picture of the latency over time."""

from pathlib import Path

from bench.latency import Sample
from bench.timeline import Second, by_second, draw


def test_each_second_has_the_latencies_of_the_results_that_were_due_in_it() -> None:
    measured = [
        Sample(101_900, 700.0),  # due in second 1, received in second 2
        Sample(100_000, 40.0),
        Sample(100_500, 60.0),
        Sample(100_999, 50.0),
    ]

    expected = [Second(0, p50_ms=50.0, max_ms=60.0), Second(1, p50_ms=700.0, max_ms=700.0)]
    assert expected == by_second(measured, since=100.0)


def test_picture_has_a_panel_for_each_program(tmp_path: Path) -> None:
    seconds = [Second(0, 40.0, 60.0), Second(1, 41.0, 800.0)]
    picture = tmp_path / "timeline.svg"

    draw({"one": seconds, "other": seconds}, picture)

    text = picture.read_text()
    assert {"one", "other"} <= set(text.replace(">", "<").split("<"))
