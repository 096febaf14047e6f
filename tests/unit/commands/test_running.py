"""`status`, `lag` and the commands on the real protocol of a small job: socket and service."""

import json
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from signal import default_int_handler

import pytest

from job.api import screen
from job.api.query import QueryView
from job.api.texts import side_rows
from job.protocol.calls import Explain, State
from job.protocol.reports import CommandReport
from job.protocol.status import QueryState
from job.spec.engine import Engine
from tests.unit.commands.called import streamjoin
from tests.unit.service.answers import all_answers
from tests.unit.service.browser import serving_page
from tests.unit.service.builders import (
    NO_BROKER,
    NOW,
    SmallJob,
    batch,
    broker_report,
    just_polled,
    state_count,
    status,
    status_after,
)

TOKEN = "0QXcFq6cXXuE4kqLq7bW"


def test_status_shows_the_running_job(spec: Path, job: SmallJob) -> None:
    shown = streamjoin("status", spec)

    assert 0 == shown.exit_code, shown.stderr
    for text in (
        "ad_attribution  left_outer, exactly_once",
        "RUNNING since 2026-11-20 12:00:00Z",
        "topic          impressions",
        "unread         15",
        "results     30: 26 matched, 4 unmatched",
        "output      attributed, sum of its end offsets 1,234",
        "latency     p50 0.40 s, p99 1.25 s, of the records of the last 5 minutes",
        "held back by right",
        "skipped        7",
    ):
        assert text in shown.stdout
    answered = json.loads(streamjoin("status", spec, "--json").stdout)
    assert (job.current.state, 30) == (answered["state"], answered["output_records"])


def test_status_shows_the_longest_phases_of_the_last_batch(spec: Path, job: SmallJob) -> None:
    phases = {
        "latest_offset": 0.03,
        "wal_commit": 0.05,
        "query_planning": 0.1,
        "add_batch": 0.25,
        "commit_offsets": 0.04,
        "trigger_execution": 0.5,
    }
    job.current = status_after(batch(phase_seconds=phases), brokers=just_polled())

    shown = streamjoin("status", spec).stdout

    assert (
        "its phases  read, join and deliver 0.25 s, plan 0.10 s, record the offsets 0.05 s, "
        "commit 0.04 s\n"
    ) in shown
    assert (
        phases
        == json.loads(streamjoin("status", spec, "--json").stdout)["last_batch"]["phase_seconds"]
    )


def test_status_without_latency_gives_the_reason(spec: Path, job: SmallJob) -> None:
    for engine, reason in (
        (Engine.MICRO_BATCH, "no records in the last 5 minutes"),
        (Engine.REAL_TIME, "engine real_time does not measure it: see `streamjoin output verify"),
    ):
        job.current = job.current.model_copy(update={"latency": None, "engine": engine})
        assert f"latency     {reason}" in streamjoin("status", spec).stdout


def test_rows_in_state_have_the_time_of_their_count() -> None:
    query = QueryView.of(status(state_count=state_count()), NOW)
    rows = {
        now: dict(side_rows(query, now))["rows in state"]
        for now in (NOW + timedelta(hours=1), NOW + timedelta(days=1))
    }

    assert [
        ("counted at 12:00:00Z: 160", "counted at 12:00:00Z: 240"),
        ("counted at 2026-11-20 12:00:00Z: 160", "counted at 2026-11-20 12:00:00Z: 240"),
    ] == list(rows.values())


def test_status_of_a_failed_query_has_the_reason_and_exit_code_1(spec: Path, job: SmallJob) -> None:
    command = CommandReport(verb="restart", by="ada@10.0.0.1", at=NOW, reason="new topic")
    job.current = status(QueryState.FAILED, last_failure=NO_BROKER, commands=[command])

    shown = streamjoin("status", spec)

    assert 1 == shown.exit_code
    assert "no broker answers at localhost:9092" in shown.stdout
    command_line = "last command: restart by ada@10.0.0.1 at 2026-11-20 12:00:00Z: new topic"
    assert command_line in shown.stdout


def watch(
    monkeypatch: pytest.MonkeyPatch, spec: Path, *between: Callable[[], object]
) -> tuple[int, str]:
    """Exit code and output. `between`: called one after another between two calls of the job; then
    comes Ctrl-C."""
    steps = iter([*between, default_int_handler])
    monkeypatch.setattr("job.commands.watch.sleep", lambda _: next(steps)(2, None))
    watched = streamjoin("watch", spec)
    return watched.exit_code, watched.output


@pytest.mark.usefixtures("job")
def test_watch_prints_a_line_for_each_call_also_while_no_job_answers(
    spec: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(screen, "LINE_SECONDS", 0)
    socket, away = tmp_path / "job.sock", tmp_path / "away"

    code, output = watch(
        monkeypatch, spec, lambda *_: socket.rename(away), lambda *_: away.rename(socket)
    )

    assert 0 == code
    first, absent, again = (line[10:] for line in output.splitlines())
    assert first.startswith("RUNNING: read 20 + 10, joined 30, late 2, bad 6, watermark ")
    assert absent.startswith(f"no answer: no job answers on {socket}")
    assert first[:60] == again[:60]


@pytest.mark.usefixtures("job")
def test_watch_updates_a_screen_and_leaves_the_terminal_as_before(
    spec: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "250")
    monkeypatch.setenv("LINES", "60")
    hide_cursor, show_cursor = "\x1b[?25l", "\x1b[?25h"

    code, output = watch(
        monkeypatch, spec, lambda *_: (tmp_path / "job.sock").rename(tmp_path / "x")
    )

    assert 0 == code
    assert output.startswith(hide_cursor)
    assert show_cursor in output[output.rindex(hide_cursor) :]
    assert "impressions" in output.partition("no answer: no job answers on")[0]
    assert re.search("The figures are .* old", output)


def test_lag_has_a_line_per_partition(spec: Path, job: SmallJob) -> None:
    lines = streamjoin("lag", spec).stdout.splitlines()

    assert ["left", "impressions", "0", "90", "100", "10", "-", "-"] == lines[1].split()
    assert ["left", "impressions", "1", "100", "105", "5"] == lines[2].split()[:6]
    assert lines[0].endswith("event time            behind now")
    assert len(lines[2].split()) > len(lines[1].split())
    answered = json.loads(streamjoin("lag", spec, "--json").stdout)
    assert 10 == answered["left"]["partitions"]["0"]["behind_latest"]
    polled = datetime.fromisoformat(answered["answered_at"])
    assert lines[-1].startswith(f"end and behind as of {polled:%Y-%m-%d %H:%M:%S}Z, ")
    assert lines[-1].endswith(" ago: the last poll of the brokers")

    polled_brokers = broker_report()
    deleted = polled_brokers.left.model_copy(update={"earliest": {0: 97, 1: 0}})
    job.current = status(brokers=polled_brokers.model_copy(update={"left": deleted}))
    lost = streamjoin("lag", spec).stdout
    assert "left partition 0: 7 offsets were deleted before they were read: `streamjoin ch" in lost
    assert ["90", "100", "3"] == lost.splitlines()[1].split()[3:6]

    job.current = status(brokers=broker_report(error="no broker answers"))
    assert "the brokers do not answer (last answer: 2026-11-20 12:00:00Z): no broker answers" in (
        streamjoin("lag", spec).stdout
    )


def test_refused_command_exits_1_with_the_reason(spec: Path, job: SmallJob) -> None:
    job.allowed = ("restart",)

    refused = streamjoin("pause", spec)

    assert 1 == refused.exit_code
    assert "answers: pause is not possible while the query is RUNNING" in refused.stderr


@pytest.mark.parametrize("command", ["status", "stop", "watch"])
def test_job_of_another_join_is_left_alone(command: str, tmp_path: Path, job: SmallJob) -> None:
    other = tmp_path / "other.yaml"
    other.write_text("name: another_join")

    refused = streamjoin(command, other)

    assert 1 == refused.exit_code
    assert "runs the join ad_attribution, and `name` in this spec is another_join" in refused.stderr
    assert [] == job.commands


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "SPEC or --url is required"),
        (("--url", "ftp://host"), "invalid --url 'ftp://host'"),
        (("--url", "http://host:x"), "invalid --url"),
        (("SPEC", "--token-file", "file"), "--token-file requires --url"),
        (("--url", "http://192.0.2.1", "--token-file", "TOKEN"), "would be sent unencrypted"),
    ],
)
def test_wrong_usage_exits_2(
    arguments: tuple[str, ...], message: str, spec: Path, tmp_path: Path
) -> None:
    files = {"SPEC": spec, "TOKEN": token_file(tmp_path)}

    wrong = streamjoin("status", *(files.get(argument, argument) for argument in arguments))

    assert 2 == wrong.exit_code
    assert message in " ".join(wrong.stderr.replace("│", " ").split())


def test_no_job_and_no_service_exit_1(spec: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STREAMJOIN_SOCKET", "/nonexistent/job.sock")

    for arguments, message in (
        ((spec,), "start it with `streamjoin run`"),
        (("--url", "http://localhost:1"), "no service answers at http://localhost:1"),
    ):
        failed = streamjoin("status", *arguments)
        assert 1 == failed.exit_code
        assert message in failed.stderr


def token_file(folder: Path, text: str = TOKEN + "\n") -> Path:
    path = folder / "token"
    path.write_text(text)
    return path


def test_service_answers_as_the_socket(
    spec: Path, job: SmallJob, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokens = tmp_path / "tokens"
    tokens.write_text(f"ada control {TOKEN}\ngrafana read {TOKEN[::-1]}\n")
    monkeypatch.setenv("http_proxy", "http://localhost:1")
    with serving_page(tmp_path / "job.sock", tokens_file=tokens) as url:
        token = token_file(tmp_path)
        through = ("--url", url, "--token-file", token)
        shown = streamjoin("status", *through)
        assert (0, "ad_attribution") == (shown.exit_code, shown.stdout.split()[0]), shown.stderr
        assert (
            streamjoin("lag", spec).stdout.split()[:20]
            == streamjoin("lag", *through).stdout.split()[:20]
        )
        paused = streamjoin("pause", spec, *through, "--reason", "a & b")
        assert 0 == paused.exit_code
        assert paused.stdout.endswith("ad_attribution is PAUSED\n")  # after the log of the service
        assert [("pause", "ada@127.0.0.1")] == job.commands
        assert "a & b" == job.last_command.reason
        job.answers = all_answers()
        since = ("--since", "2026-11-20T10:00:00+01:00")
        explained = streamjoin("explain", *through, "--key", "a", "--key", "ä&", *since)
        assert explained.stdout.endswith("The query is PAUSED.\n"), explained.stderr
        at = datetime(2026, 11, 20, 9, tzinfo=UTC)
        assert Explain(key=["a", "ä&"], limit=20, since=at) == job.last_request
        rows = streamjoin("state", *through, "--side", "right", "--key", "ä&")
        assert "1 left row with key ['7']" in rows.stdout, rows.stderr
        assert State(side="right", key=["ä&"], limit=100) == job.last_request
        assert "right state partition 1: 90 rows\n" in streamjoin("state", *through).stdout

        job.allowed = ("restart",)
        assert "pause is not possible" in streamjoin("pause", *through).stderr
        assert "--token-file FILE" in streamjoin("status", "--url", url).stderr
        token_file(tmp_path, TOKEN[::-1])
        assert "control is required" in streamjoin("pause", *through).stderr
        token_file(tmp_path, tokens.read_text())
        assert "must contain one token" in streamjoin("pause", *through).stderr


@contextmanager
def redirecting_server(target: str) -> Iterator[tuple[str, list[str]]]:
    """URL of a server that redirects, and the paths that were requested."""
    paths: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            paths.append(self.path)
            self.send_response(302)
            self.send_header("Location", target + "/stolen")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}", paths
        server.shutdown()
        thread.join()


def test_token_does_not_follow_a_redirect(tmp_path: Path) -> None:
    with redirecting_server("http://127.0.0.1:1") as (url, paths):
        refused = streamjoin("status", "--url", url, "--token-file", token_file(tmp_path))

    assert "answers 302" in refused.stderr
    assert ["/v1/query"] == paths


def test_each_command_has_help_with_an_example_and_the_short_option() -> None:
    for command in ("status", "pause", "topics create", "checkpoint verify", "init"):
        shown = streamjoin(*command.split(), "-h")
        assert 0 == shown.exit_code
        assert f"Example: streamjoin {command}" in shown.stdout
