"""The checkpoint under two jobs, after a power failure, backed up and restored."""

import json
from pathlib import Path
from zlib import crc32

import pytest

from deploy.local.kafka import EmbeddedKafka
from tests.integration.jobs import START_SECONDS, Job
from tests.integration.jvms import SharedJvm
from tests.integration.pairs import Pairs
from tests.integration.test_one_query_per_name import second_jvm
from tests.polling import wait_until

__all__ = ["second_jvm"]  # a fixture


@pytest.fixture
def pairs(kafka: EmbeddedKafka, tmp_path: Path, request: pytest.FixtureRequest) -> Pairs:
    pairs = Pairs(kafka, f"checkpoint{crc32(request.node.name.encode())}", tmp_path)
    pairs.create_topics()
    return pairs


def run_until_read(pairs: Pairs, folder: Path, count: int, jvm: SharedJvm) -> Job:
    """A job that has read `count` records a side and has ended."""
    with Job(pairs.spec(), folder, jvm) as job:
        job.wait_for_offsets(left=count, right=count)
        assert 0 == job.terminate()
    # A batch may have been planned that did not start.
    query = folder / "checkpoint" / "query"
    while int(newest(query / "offsets").name) > int(newest(query / "commits").name):
        remove(newest(query / "offsets"))
    return job


def newest(log: Path) -> Path:
    return max((path for path in log.iterdir() if path.name.isdecimal()), key=lambda p: int(p.name))


def remove(path: Path) -> None:
    """Remove the file and its checksum, as if it had never been written."""
    path.unlink()
    (path.parent / f".{path.name}.crc").unlink(missing_ok=True)


def empty(path: Path) -> None:
    """Leave an empty file, as after a power failure between its creation and its content."""
    remove(path)
    path.touch()


def test_checkpoint_in_use_is_refused_to_a_second_job_and_to_commands(
    pairs: Pairs, tmp_path: Path, jvm: SharedJvm, second_jvm: SharedJvm
) -> None:
    other_folder = tmp_path / "other"
    other_folder.mkdir()
    with (
        Job(pairs.spec(), tmp_path, jvm) as first,
        Job(pairs.spec(), other_folder, second_jvm) as second,
    ):
        jobs = [first, second]
        [loser] = wait_until(
            lambda: [job for job in jobs if job.process.poll() is not None],
            START_SECONDS,
            "one of the two has ended",
        )
        [winner] = [job for job in jobs if job is not loser]
        assert 1 == loser.process.returncode
        assert f"process {winner.process.pid} on" in loser.log.read_text()
        assert "Traceback" not in loser.log.read_text()

        pairs.produce(range(3))
        winner.wait_for_offsets(left=3, right=3)
        backup = ("backup", str(winner.spec_file), str(tmp_path / "backup"))
        refused = winner.command("checkpoint", *backup)
        assert 1 == refused.returncode
        assert f"process {winner.process.pid} on" in refused.stderr
        assert "Traceback" not in refused.stderr
    assert [0, 1, 2] == pairs.numbers()


def test_frozen_job_ends_after_its_thaw_if_it_has_a_successor(
    pairs: Pairs, tmp_path: Path, jvm: SharedJvm, second_jvm: SharedJvm
) -> None:
    other_folder = tmp_path / "other"
    other_folder.mkdir()
    with Job(pairs.spec(), tmp_path, second_jvm) as first:
        pairs.produce(range(3))
        first.wait_for_offsets(left=3, right=3)
        first.freeze()
        with Job(pairs.spec(), other_folder, jvm) as second:
            pairs.produce(range(3, 6))
            second.wait_for_offsets(left=6, right=6)
            first.thaw()
            assert 1 == first.process.wait(START_SECONDS)
            assert f"taken over by the job with process {second.process.pid}" in (
                first.log.read_text()
            )
    assert [0, 1, 2, 3, 4, 5] == pairs.numbers()


def test_next_start_repairs_logs_after_a_power_failure_and_refuses_other_damage(
    pairs: Pairs, tmp_path: Path, jvm: SharedJvm
) -> None:
    pairs.produce(range(3))
    job = run_until_read(pairs, tmp_path, 3, jvm)
    query = tmp_path / "checkpoint" / "query"
    for count, log in ((6, "offsets"), (9, "commits")):
        if log == "offsets":
            remove(newest(query / "commits"))  # the batch had not ended yet
        empty(newest(query / log))
        job.log.unlink()
        pairs.produce(range(count - 3, count))
        job = run_until_read(pairs, tmp_path, count, jvm)
        assert "checkpoint_repaired" in job.log.read_text(), log
    assert set(range(9)) == set(pairs.numbers())

    # A committed batch.
    empty(newest(query / "offsets"))
    with Job(pairs.spec(), tmp_path, jvm) as job:
        failure = job.wait_for_state("FAILED").last_failure
        assert failure is not None
        assert "checkpoint" == failure.code
        assert "cannot be repaired" in failure.message
        assert "streamjoin checkpoint restore" in failure.message


def test_checkpoint_is_verified_backed_up_restored_read_and_refused_if_executors_do_not_share_it(
    pairs: Pairs, tmp_path: Path, jvm: SharedJvm, monkeypatch: pytest.MonkeyPatch
) -> None:
    pairs.produce(range(3))
    job = run_until_read(pairs, tmp_path, 3, jvm)
    spec, target = str(job.spec_file), str(tmp_path / "backup")

    verified = job.command("checkpoint", "verify", spec)
    assert (0, "") == (verified.returncode, "\n".join(_wrong(verified.stdout)))
    assert "state: 6 rows read" in verified.stdout
    backup = job.command("checkpoint", "backup", spec, target)
    assert 0 == backup.returncode, backup.stderr
    assert "is not empty" in job.command("checkpoint", "backup", spec, target).stderr
    shown = job.command("state", spec, "--side", "right", "--key", "2", "--json")
    [[row]] = [found["rows"] for found in json.loads(shown.stdout)]
    assert 2 == row["row"]["n"]

    state = tmp_path / "checkpoint" / "query" / "state" / "0"
    for path in [*state.rglob("*.changelog"), *state.rglob("*.zip")]:
        path.write_bytes(b"damaged")
        (path.parent / f".{path.name}.crc").unlink(missing_ok=True)
    damaged = job.command("checkpoint", "verify", spec)
    assert 1 == damaged.returncode
    assert ["state"] == [line.split()[1].rstrip(":") for line in _wrong(damaged.stdout)]
    restored = job.command("checkpoint", "restore", spec, target)
    assert 0 == restored.returncode, restored.stderr

    with Job(pairs.spec(), tmp_path, jvm) as again:
        pairs.produce(range(3, 6))
        again.wait_for_offsets(left=6, right=6)
    assert [0, 1, 2, 3, 4, 5] == pairs.numbers()

    # A job on a cluster is refused before it needs an executor, so it gets the session of this JVM.
    logged = newest(tmp_path / "checkpoint" / "query" / "offsets")
    monkeypatch.setenv("STREAMJOIN_SPARK_MASTER", "spark://localhost:1")
    with Job(pairs.spec(), tmp_path, jvm) as job:
        failure = job.wait_for_state("FAILED").last_failure
        assert failure is not None
        assert "checkpoint" == failure.code
        assert "set STREAMJOIN_CHECKPOINT_IS_SHARED=true" in failure.message
        assert 1 == job.terminate()
    assert logged == newest(logged.parent)


def _wrong(output: str) -> list[str]:
    return [line for line in output.splitlines() if line.startswith("FAILED")]
