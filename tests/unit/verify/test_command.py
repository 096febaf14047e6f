"""`streamjoin output verify` without a broker: what it needs of the job, and its exit codes."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest
from typer.testing import CliRunner, Result

from job.__main__ import app
from job.api.client import SocketClient
from job.kafka.topic_settings import TopicSettings
from job.protocol.control import control_socket
from job.protocol.reports import ChangeReport, FilterChangeReport
from job.protocol.status import JobStatus
from job.verify import verify
from job.verify.comparison import Comparison, Difference, Shown
from job.verify.joined import CLOCKS_MS, Progress
from job.verify.report import Report
from job.verify.topics import TopicPart
from tests.unit.service.builders import (
    NO_BROKER,
    NOW,
    SmallJob,
    batch,
    just_polled,
    status,
    status_after,
)
from tests.unit.specs import plan, spec_yaml

if TYPE_CHECKING:
    from job.kafka.kafka_admin import KafkaAdmin


@pytest.fixture
def socket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    path = tmp_path / "job.sock"
    monkeypatch.setenv("STREAMJOIN_SOCKET", str(path))
    return path


def verified(folder: Path, *options: str) -> Result:
    spec = folder / "join.yaml"
    spec.write_text(spec_yaml())
    return CliRunner().invoke(app, ["output", "verify", str(spec), *options])


@pytest.mark.usefixtures("socket")
@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ([], "no job answers on"),
        (["--url", "http://127.0.0.1:1"], "no service answers at http://127.0.0.1:1"),
    ],
)
def test_without_a_job_until_is_required(tmp_path: Path, options: list[str], reason: str) -> None:
    done = verified(tmp_path, *options)

    assert 1 == done.exit_code
    assert reason in done.stderr
    assert "Without a job --until is required" in done.stderr


def test_differences_exit_1(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    comparison = Comparison(agree=3)
    calls: list[Any] = []

    def verify_output(*arguments: Any) -> Report:
        calls.append(arguments[3:])
        return Report(comparison, ["clicks: 3 records"])

    monkeypatch.setattr(verify, "verify_output", verify_output)
    bounds = ("--since", "2026-11-20T12:00:00Z", "--until", "2026-11-20T13:00:00+01:00")
    agreeing = verified(tmp_path, *bounds)
    comparison.add(Difference.MISSING, Shown("impressions/0/1|", "both were joined", None))
    differing = verified(tmp_path, "--json")

    comparison = Comparison()
    nothing_checked = verified(tmp_path)

    assert (0, 1, 1) == (agreeing.exit_code, differing.exit_code, nothing_checked.exit_code)
    assert "No results were checked." in nothing_checked.stdout
    assert agreeing.stdout.startswith("clicks: 3 records\n")
    assert {"agree": 3, "missing": 1} == {
        name: count for name, count in json.loads(differing.stdout)["counts"].items() if count
    }
    noon_ms = round(NOW.timestamp() * 1000)
    assert [(noon_ms, noon_ms), (None, None), (None, None)] == calls


@pytest.mark.parametrize("is_hidden", [True, False])
def test_output_with_an_open_transaction_may_lack_any_result(
    monkeypatch: pytest.MonkeyPatch, is_hidden: bool
) -> None:
    settings = TopicSettings("o", {"cleanup.policy": "delete"}, None)
    monkeypatch.setattr(verify, "read_settings", lambda *_: settings)
    part = TopicPart("o", {0: 0}, {0: 0}, {0: 9}, is_hidden=is_hidden)

    read = verify._output_read(plan(), cast("KafkaAdmin", None), part)

    assert is_hidden == read.may_lack_any


@pytest.mark.parametrize(
    ("of_job", "has_watermark", "is_known"),
    [
        (status_after(batch(), brokers=just_polled()), True, False),
        (status(brokers=just_polled()), False, True),
        (status(brokers=just_polled(), last_failure=NO_BROKER), False, False),
    ],
)
def test_progress_is_that_of_completed_batches(
    of_job: JobStatus, has_watermark: bool, is_known: bool, socket: Path
) -> None:
    with control_socket(socket, SmallJob(of_job)):
        job = SocketClient(socket, "ad_attribution", "ada")
        progress = verify.read_progress(plan(), job, is_required=True)

    assert progress is not None
    assert 90 == progress.next_offsets["left", "impressions", 0]
    assert has_watermark == (progress.watermark_ms is not None)
    since_ms = round(NOW.timestamp() * 1000) + CLOCKS_MS if is_known else None
    change = {("left", "impressions", 0): 5, ("right", "clicks", 0): 4}
    of_change = {} if of_job.change is None else change
    assert progress == Progress(progress.next_offsets, progress.watermark_ms, since_ms, of_change)


def test_records_that_were_read_with_other_filters_are_before_a_change(socket: Path) -> None:
    change = ChangeReport(
        old_checkpoint="/old",
        phase="over",
        records=9,
        records_left=0,
        possibly_late_records=0,
        offsets={"left": {"0": 4}, "right": {"0": 6}},
    )
    filters = FilterChangeReport(changed_at=NOW, offsets={"left": {"0": 5}, "right": {"0": 2}})
    of_job = status(brokers=just_polled(), change=change, filter_change=filters)
    with control_socket(socket, SmallJob(of_job)):
        job = SocketClient(socket, "ad_attribution", "ada")
        progress = verify.read_progress(plan(), job, is_required=True)

    assert progress is not None
    assert [5, 6] == [offset for _, offset in sorted(progress.change.items())]
