"""What a job refuses at its start, and the message it gives."""

import subprocess
import sys
from pathlib import Path
from zlib import crc32

import pytest

from deploy.local.kafka import EmbeddedKafka
from tests.integration.jobs import START_SECONDS, Job
from tests.integration.jvms import SharedJvm
from tests.integration.pairs import Pairs
from tests.unit.specs import changed


@pytest.fixture
def pairs(kafka: EmbeddedKafka, tmp_path: Path, request: pytest.FixtureRequest) -> Pairs:
    """Each test has its own topics."""
    return Pairs(kafka, f"start{crc32(request.node.name.encode())}", tmp_path)


def test_missing_topics_are_named_and_a_restart_runs_once_they_exist(
    pairs: Pairs, tmp_path: Path, jvm: SharedJvm
) -> None:
    with Job(pairs.spec(), tmp_path, jvm) as job:
        failure = job.wait_for_state("FAILED").last_failure
        assert failure is not None
        assert "topic" == failure.code
        for part in ("left", "right", "out"):
            assert f"--create --topic {pairs.name}.{part}" in failure.message
        assert ["restart", "stop", "undo"] == job.ask("pause")["error"]["allowed"]

        pairs.create_topics()
        pairs.produce(range(3))
        job.ask("restart")
        status = job.wait_for_offsets(left=3, right=3)
        assert (1, {"topic": 1}) == (status.totals.restarts, status.totals.failures)
        assert 0 == job.terminate()
    assert [0, 1, 2] == pairs.numbers()


def test_second_job_on_a_socket_is_refused_and_each_field_that_the_checkpoint_does_not_accept(
    pairs: Pairs, tmp_path: Path, jvm: SharedJvm
) -> None:
    pairs.create_topics()
    with Job(pairs.spec(), tmp_path, jvm) as job:
        job.wait_for_state("RUNNING")
        second = subprocess.run(
            [sys.executable, "-m", "job", "run", str(job.spec_file)],
            env={"STREAMJOIN_SOCKET": str(job.socket)},
            capture_output=True,
            text=True,
            timeout=START_SECONDS,
            check=False,
        )
        assert 1 == second.returncode
        assert f"another job serves on STREAMJOIN_SOCKET {job.socket}" in second.stderr
        assert "Traceback" not in second.stderr
        job.wait_for_state("RUNNING")
        assert 0 == job.terminate()

        job.spec_file.write_text(pairs.spec(after="11 seconds"))
        job.start()
        failure = job.wait_for_state("FAILED").last_failure
        assert failure is not None
        assert (
            "join.match_window.after: frozen as 10 seconds, the spec has 11 seconds"
            in failure.message
        )
        [change] = job.ask("validate", spec=job.spec_file.read_text())["result"][
            "checkpoint_changes"
        ]
        assert {
            "field": "join.match_window.after",
            "frozen": "10 seconds",
            "wanted": "11 seconds",
        } == change
        # The exit code reports the failure, too.
        assert 1 == job.terminate()

        ended = job.command("run", str(job.spec_file), STREAMJOIN_KEEP_RUNNING="false")
        assert 2 == ended.returncode
        assert "join.match_window.after: frozen as 10 seconds" in ended.stderr.splitlines()[-2]


@pytest.mark.parametrize(
    ("written", "exit_code", "message"),
    [("name: x\n", 2, "kafka: is required"), (None, 1, "cannot be read")],
    ids=["wrong spec", "no file"],
)
def test_spec_that_cannot_run_is_refused_without_a_stack_trace(
    written: str | None, exit_code: int, message: str, tmp_path: Path
) -> None:
    spec = tmp_path / "join.yaml"
    if written is not None:
        spec.write_text(written)
    ended = subprocess.run(
        [sys.executable, "-m", "job", "run", str(spec)],
        capture_output=True,
        text=True,
        timeout=START_SECONDS,
        check=False,
    )
    assert exit_code == ended.returncode
    assert message in ended.stderr
    assert "Traceback" not in ended.stderr


def test_restart_reads_the_spec_file_again(pairs: Pairs, tmp_path: Path, jvm: SharedJvm) -> None:
    pairs.create_topics()
    with Job(pairs.spec(), tmp_path, jvm) as job:
        job.wait_for_state("RUNNING")
        pairs.produce(range(3))
        job.wait_for_offsets(left=3, right=3)

        job.spec_file.write_text(pairs.spec(after="11 seconds"))
        refused = job.command("restart", str(job.spec_file))
        assert 1 == refused.returncode
        assert "join.match_window.after: frozen as 10 seconds" in refused.stderr
        assert job.wait_for_state("RUNNING").totals.restarts == 0

        job.spec_file.write_text(changed(pairs.spec(), output__filter="left.n > 3"))
        restarted = job.command("restart", str(job.spec_file))
        assert 0 == restarted.returncode, restarted.stderr
        assert "has changed: the query continues with it" in restarted.stdout
        pairs.produce(range(3, 6))
        job.wait_for_offsets(left=6, right=6)
        assert 0 == job.terminate()
    assert [0, 1, 2, 4, 5] == pairs.numbers()
