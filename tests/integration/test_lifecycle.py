"""The life cycle of a job: start, commands, failures of each of its parts, restart."""

import json
from collections.abc import Iterator
from pathlib import Path
from signal import SIGINT, SIGTERM
from zlib import crc32

import psutil
import pytest

from deploy.local.kafka import EmbeddedKafka
from job.jvm_command import CLASS_ARCHIVE
from job.protocol.status import JobStatus
from tests.brokers import BROKER_OPTIONS
from tests.integration.jobs import START_SECONDS, STOP_SECONDS, Job
from tests.integration.jvms import SharedJvm
from tests.integration.pairs import Pairs
from tests.lineage_stub import LineageStub
from tests.polling import wait_until
from tests.processes import command_line, has_ended, name
from tests.unit.specs import changed
from tests.wheel import ROOT, InstalledWheel

# A batch of this many records a side takes long enough to be interrupted.
MANY = 12_000


@pytest.fixture
def pairs(kafka: EmbeddedKafka, tmp_path: Path, request: pytest.FixtureRequest) -> Pairs:
    """Each test has its own topics."""
    return Pairs(kafka, f"lifecycle{crc32(request.node.name.encode())}", tmp_path)


def jvms(job: Job) -> list[psutil.Process]:
    return [process for process in job.tree if name(process) == "java"]


def maps_the_class_archive(jvm: psutil.Process) -> bool:
    """A JVM ignores an unusable archive without a message."""
    return any(CLASS_ARCHIVE in region.path for region in jvm.memory_maps())


def read_all(job: Job, count: int) -> JobStatus:
    return job.wait_for_offsets(left=count, right=count)


def wait_for_results(pairs: Pairs, count: int) -> None:
    wait_until(lambda: pairs.result_count() >= count, START_SECONDS, f"{count} results are out")


def desired_state(folder: Path) -> str | None:
    """The state in the file next to the checkpoint."""
    path = folder / "checkpoint" / "desired_state.json"
    return str(json.loads(path.read_text())["state"]) if path.exists() else None


def wait_for_end(processes: list[psutil.Process]) -> None:
    wait_until(lambda: all(map(has_ended, processes)), STOP_SECONDS, "no process is left")


def logged_events(job: Job) -> list[str]:
    """The events that the job has logged, in order."""
    lines = job.log.read_text().splitlines()
    return [json.loads(line)["event"] for line in lines if line.startswith("{")]


def fields(changes: list[dict[str, str]]) -> list[str]:
    return [change["field"] for change in changes]


@pytest.fixture
def installed_job(
    wheel: InstalledWheel, pairs: Pairs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Job:
    """Runs from the installed wheel, and delivers exactly once."""
    monkeypatch.setenv("STREAMJOIN_JARS", str(ROOT / ".jars" / "spark"))
    monkeypatch.chdir(tmp_path)  # Python finds modules in its working folder first.
    pairs.delivery = "exactly_once"
    job = Job(pairs.spec(), tmp_path)
    job.program = (wheel.program("streamjoin"),)
    return job


def test_pause_keeps_the_jvm_and_stop_frees_it_and_neither_repeats_a_result(
    pairs: Pairs, installed_job: Job
) -> None:
    pairs.create_topics()
    with installed_job as job:
        pairs.produce(range(3))
        run_id = read_all(job, 3).run_id
        [jvm] = jvms(job)

        job.ask("pause")
        job.ask("pause")
        job.wait_for_state("PAUSED")
        pairs.produce(range(3, 6))
        assert [jvm.pid] == [process.pid for process in jvms(job)]
        assert [0, 1, 2] == pairs.numbers()

        job.ask("resume")
        assert run_id == read_all(job, 6).run_id
        assert [jvm.pid] == [process.pid for process in jvms(job)]

        job.ask("pause")
        job.wait_for_state("PAUSED")
        job.ask("stop")
        job.wait_for_state("STOPPED")
        assert [] == jvms(job)

        pairs.produce(range(6, 9))
        job.ask("resume")
        read_all(job, 9)
        assert 0 == job.terminate()
    assert list(range(9)) == pairs.numbers()


def test_resume_while_the_brokers_are_away_is_kept(
    pairs: Pairs, tmp_path: Path, jvm: SharedJvm
) -> None:
    away = changed(pairs.spec(), kafka__bootstrap_servers="127.0.0.1:1")
    with Job(away, tmp_path, jvm) as job:
        job.wait_for_state("RESTARTING")
        job.ask("stop")
        job.wait_for_state("STOPPED")
        assert "STOPPED" == desired_state(tmp_path)

        job.ask("resume")
        wait_until(
            lambda: desired_state(tmp_path) == "RUNNING",
            START_SECONDS,
            "the desired state is stored",
        )
        job.wait_for_state("RESTARTING")


def test_stop_during_a_batch_completes_the_batch_and_repeats_nothing(
    pairs: Pairs, tmp_path: Path, jvm: SharedJvm
) -> None:
    """The signal goes to the job alone, or to its process group, as `timeout` and Ctrl-C do."""
    pairs.create_topics()

    def run_into_a_batch(job: Job, first: int) -> None:
        """Results are written, but the batch is still running: an interruption would be visible."""
        pairs.produce(range(first, first + MANY))
        job.wait_for_state("RUNNING")
        wait_for_results(pairs, first + 1)

    with Job(pairs.spec(after="1 hour"), tmp_path) as job:
        run_into_a_batch(job, 0)
        tree = job.tree
        assert 0 == job.signal_group(SIGTERM)
        wait_for_end(tree)
        job.start()
        run_into_a_batch(job, MANY)
        tree = job.tree
        assert 0 == job.signal_group(SIGINT)
        wait_for_end(tree)
    with Job(pairs.spec(after="1 hour"), tmp_path, jvm) as job:
        run_into_a_batch(job, 2 * MANY)
        assert 0 == job.terminate()
        assert ["state", "job_stopped"] * 3 == logged_events(job)
        assert "Exception" not in job.log.read_text()
        pairs.produce([3 * MANY])
        job.start()
        read_all(job, 3 * MANY + 1)
        assert 0 == job.terminate()
    assert list(range(3 * MANY + 1)) == pairs.numbers()


def test_pause_during_a_batch_completes_the_batch(
    pairs: Pairs, tmp_path: Path, jvm: SharedJvm
) -> None:
    pairs.create_topics()
    with Job(pairs.spec(after="1 hour"), tmp_path, jvm) as job:
        job.wait_for_state("RUNNING")
        pairs.produce(range(MANY))
        wait_for_results(pairs, 1)
        job.ask("pause")
        job.wait_for_state("PAUSED")

        def counted() -> int:
            status = job.status()
            return status.totals.output_records if status else 0

        # The job knows what an ended batch has written; Spark reports it a moment later.
        wait_until(
            lambda: counted() == pairs.result_count(), START_SECONDS, "the batch has been reported"
        )
        job.ask("resume")
        read_all(job, MANY)
        assert 0 == job.terminate()
    assert list(range(MANY)) == pairs.numbers()


def test_killed_job_loses_nothing_and_repeated_results_have_the_same_id(
    pairs: Pairs, tmp_path: Path, jvm: SharedJvm
) -> None:
    pairs.create_topics()
    with Job(pairs.spec(after="1 hour"), tmp_path, jvm) as job:
        for start in range(0, 2 * MANY, MANY):
            pairs.produce(range(start, start + MANY))
            if start:
                job.start()
            wait_for_results(pairs, start + 1)
            job.kill_tree()
        pairs.produce([2 * MANY])
        job.start()
        read_all(job, 2 * MANY + 1)
        assert 0 == job.terminate()

    by_id = {received.result_id: received.value["n"] for received in pairs.received()}
    assert list(range(2 * MANY + 1)) == sorted(by_id.values())


@pytest.fixture
def endpoint(monkeypatch: pytest.MonkeyPatch) -> Iterator[LineageStub]:
    """Receives the run events of the test's job."""
    with LineageStub() as started:
        monkeypatch.setenv("STREAMJOIN_OPENLINEAGE_URL", started.url)
        yield started


def python_workers(job: Job) -> list[psutil.Process]:
    """Spark starts them for Python code in a query, and keeps their daemon while the JVM runs."""
    return [process for process in job.tree if "pyspark.daemon" in command_line(process)]


def test_lost_jvm_is_replaced_while_the_query_runs_and_while_it_is_paused(
    pairs: Pairs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, endpoint: LineageStub
) -> None:
    """On request every line of the log is JSON. The JVM ends with its driver, and the query is
    still paused after that."""
    monkeypatch.setenv("STREAMJOIN_LOG_FORMAT", "json")
    pairs.delivery = "exactly_once"
    pairs.create_topics()
    with Job(pairs.spec(), tmp_path) as job:
        pairs.produce(range(3))
        read_all(job, 3)
        [jvm] = jvms(job)
        assert maps_the_class_archive(jvm)
        assert [] == python_workers(job)
        # No memory for one more page: the JVM ends itself, or the system kills it.
        used = jvm.memory_info().vms
        jvm.rlimit(psutil.RLIMIT_AS, (used // 2, used // 2))
        pairs.produce(range(3, 6))
        wait_for_end([jvm])

        pairs.produce(range(6, 9))
        status = read_all(job, 9)
        [jvm] = jvms(job)
        assert maps_the_class_archive(jvm)
        assert [] == python_workers(job)
        assert status.last_failure is not None
        assert "the JVM is gone" in status.last_failure.message
        events = ["START", "FAIL", "START"]
        wait_until(lambda: endpoint.states == events, START_SECONDS, "the runs are reported")
        first, failed, second = (event["run"]["runId"] for event in endpoint.events)
        assert first == failed != second == status.run_id

        job.ask("pause")
        job.wait_for_state("PAUSED")
        jvm.kill()

        def replaced() -> psutil.Process | None:
            status = job.status()
            paused = status is not None and status.state == "PAUSED"
            others = [process for process in jvms(job) if process != jvm]
            return others[0] if paused and others else None

        successor = wait_until(replaced, START_SECONDS, "the query is paused in another JVM")
        successor.suspend()  # it cannot end by itself: a JVM may hang in the libraries it unloads
        job.kill()
        wait_for_end([successor])

        job.start()
        job.wait_for_state("PAUSED")
        answer = job.ask("validate", spec=pairs.spec(after="11 seconds"))["result"]
        assert ["join.match_window.after"] == fields(answer["checkpoint_changes"])
        pairs.produce(range(9, 12))
        job.ask("resume")
        run_id = read_all(job, 12).run_id
        assert 0 == job.terminate()
        lines = [json.loads(line) for line in job.log.read_text().splitlines()]
    last = [(event["eventType"], event["run"]["runId"]) for event in endpoint.events[-2:]]
    assert [("START", run_id), ("COMPLETE", run_id)] == last
    assert list(range(12)) == pairs.numbers()
    for line in lines:
        assert {"event", "level", "timestamp"} <= line.keys()
    assert "query_retried" in [line["event"] for line in lines]


def test_job_waits_for_a_broker_that_is_down_at_the_start_or_later(
    tmp_path: Path, jvm: SharedJvm
) -> None:
    with EmbeddedKafka(tmp_path / "kafka", jvm_options=BROKER_OPTIONS) as kafka:
        pairs = Pairs(kafka, "outage", tmp_path)
        pairs.create_topics()
        pairs.produce(range(3))
        kafka.stop()
        with Job(pairs.spec(), tmp_path, jvm) as job:
            failure = job.wait_for_state("RESTARTING").last_failure
            assert failure is not None
            assert "broker" == failure.code
            assert f"no broker answers at {kafka.bootstrap_servers}" in failure.message

            kafka.start()
            read_all(job, 3)
            kafka.kill()
            failure = job.wait_for_state("RESTARTING").last_failure
            assert failure is not None
            assert failure.retryable
            assert f"lost Kafka at {kafka.bootstrap_servers}" in failure.message

            kafka.start()
            pairs.produce(range(3, 6))
            read_all(job, 6)
            assert 0 == job.terminate()
        assert list(range(6)) == pairs.numbers()
