"""The launcher of Kafka's command-line tools: its help, and the tools that it knows."""

import sys

import pytest

from deploy.local.kafka_tools import MAIN_CLASSES, main


@pytest.mark.parametrize(
    ("arguments", "code"), [(["--help"], 0), (["-h"], 0), ([], 2), (["topic"], 2)]
)
def test_help_and_errors_show_usage_and_tools(
    arguments: list[str],
    code: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(sys, "argv", ["kafka_tools", *arguments])

    assert code == main()
    shown = capsys.readouterr()
    text, nothing = (shown.err, shown.out) if code else (shown.out, shown.err)
    assert not nothing
    assert "usage: python -m deploy.local.kafka_tools TOOL [OPTIONS]" in text
    assert all(f"  {tool}\n" in text for tool in MAIN_CLASSES)
    assert ("unknown tool topic" in text) == (arguments == ["topic"])
