"""The job on a cluster, whose executors are separate processes."""

import signal
from collections.abc import Iterator, Mapping
from pathlib import Path
from zlib import crc32

import pytest

from deploy.local.kafka import EmbeddedKafka
from job.protocol.status import Phase
from job.query.pacing import RECORDS_MIN
from tests.faults.faulty_job import FaultyJob
from tests.faults.proxied_kafka import proxied_kafka
from tests.faults.proxy import Api, Point, Proxy
from tests.faults.slots import HELD_SECONDS
from tests.integration.clusters import HOST, Cluster
from tests.integration.jobs import START_SECONDS
from tests.integration.keyed_sides import JAVA_PARTITIONS
from tests.integration.pairs import Pairs
from tests.polling import wait_until
from tests.processes import has_ended, local_ports, signal_all
from tests.registry_stub import RegistryStub
from tests.unit.specs import changed

BLOCK = 1_000
# Two executors start in addition to the driver's JVM.
CLUSTER_SECONDS = 2 * START_SECONDS


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A master and two workers of one core."""
    # Spark soon gives up an application whose executors end by themselves.
    environment = {"SPARK_MASTER_OPTS": "-Dspark.deploy.maxExecutorRetries=1"}
    with Cluster(tmp_path_factory.mktemp("cluster"), environment) as started:
        started.have_workers(2)
        yield started


@pytest.fixture(scope="module")
def proxied(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[EmbeddedKafka, Proxy]]:
    with proxied_kafka(tmp_path_factory.mktemp("proxied-kafka")) as both:
        yield both


@pytest.fixture
def kafka(proxied: tuple[EmbeddedKafka, Proxy]) -> EmbeddedKafka:
    """Without the proxy."""
    return proxied[0]


@pytest.fixture
def proxy(proxied: tuple[EmbeddedKafka, Proxy]) -> Iterator[Proxy]:
    yield proxied[1]
    proxied[1].heal()


@pytest.fixture
def pairs(request: pytest.FixtureRequest, kafka: EmbeddedKafka, tmp_path: Path) -> Iterator[Pairs]:
    """The left values are Avro: executors request the schema from the driver."""
    name = f"cluster{crc32(request.node.name.encode())}"
    with RegistryStub() as registry:
        pairs = Pairs(kafka, name, tmp_path, delivery="exactly_once", registry=registry)
        pairs.create_topics()
        yield pairs


def job_on(cluster: Cluster, spec: str, folder: Path, more: Mapping[str, str] = {}) -> FaultyJob:
    """All processes see this folder, as they would a mounted shared file system."""
    environment = {
        "STREAMJOIN_SPARK_MASTER": cluster.url,
        "STREAMJOIN_CHECKPOINT_IS_SHARED": "true",
        "SPARK_LOCAL_IP": HOST,
        **more,
    }
    return FaultyJob(spec, folder, environment)


# How many transactions the repeated task has found committed so far, by whether the broker has
# received the commit.
SKIPPED = {False: 0, True: 1}


@pytest.mark.parametrize("operator", ["spark", "streamjoin"])
def test_worker_killed_during_a_batch_and_then_the_driver_lose_and_repeat_nothing(
    operator: str, cluster: Cluster, pairs: Pairs, proxy: Proxy, tmp_path: Path
) -> None:
    """The worker is killed while the proxy holds the commit of a task, or its answer. The commit
    arrives when the task has run again. The left row of each result is in the state of an earlier
    batch, so a task that runs again needs the state that the killed worker had in memory."""
    spec = changed(
        pairs.spec(),
        kafka__bootstrap_servers=f"{HOST}:{proxy.port}",
        join__operator=operator,
        output__partition_by="if(n % 2 = 0, 'edge', 'x')",
    )
    held = {"STREAMJOIN_TEST_COMMIT_SECONDS": str(HELD_SECONDS)}
    with job_on(cluster, spec, tmp_path, held) as job:
        job.wait_for_state("RUNNING", CLUSTER_SECONDS)
        pairs.produce_left(range(2 * BLOCK))
        pairs.produce_right(range(BLOCK))
        job.wait_for_offsets(left=2 * BLOCK, right=BLOCK)
        for number, (is_answered, skipped) in enumerate(SKIPPED.items(), start=1):
            cluster.have_workers(2)
            cluster.wait_for_executors(2)
            point = Point(
                *(Api.END_TXN, f"streamjoin-{pairs.name}-0"),
                is_answered=is_answered,
                topic=f"{pairs.name}.out",
            )
            proxy.catch(point)
            pairs.produce_left(range((number + 1) * BLOCK, (number + 2) * BLOCK))
            pairs.produce_right(range(number * BLOCK, (number + 1) * BLOCK))
            proxy.wait_until_caught(point)
            [executor] = [
                executor
                for executor in cluster.executors()
                if point.client_port in local_ports(executor)
            ]
            cluster.kill_worker(executor)
            status = job.wait_for_offsets(left=(number + 2) * BLOCK, right=(number + 1) * BLOCK)
            proxy.release()
            if not is_answered:
                proxy.wait_until_over(point)
            assert list(range((number + 1) * BLOCK)) == pairs.numbers(), point
            assert skipped == status.totals.transactions["skipped"], point
            assert 0 == status.totals.restarts, "the task is run again, not the query"

        executors = cluster.executors()
        job.kill()
        wait_until(lambda: all(map(has_ended, executors)), START_SECONDS, "executors have ended")
        job.start()
        job.wait_for_state("RUNNING", CLUSTER_SECONDS)
        pairs.produce_right(range(3 * BLOCK, 4 * BLOCK))
        job.wait_for_offsets(left=4 * BLOCK, right=4 * BLOCK)
        assert 0 == job.terminate()
    results = pairs.received()
    assert list(range(4 * BLOCK)) == sorted(result.value["n"] for result in results)
    for result in results:
        chosen_by = "x" if result.value["n"] % 2 else "edge"
        assert JAVA_PARTITIONS[chosen_by] == result.partition


TURKISH = (
    "-Duser.language=tr -Duser.country=TR -Duser.region=TR -Duser.language.format=tr "
    "-Dfile.encoding=ISO-8859-9 -Duser.timezone=Europe/Istanbul"
)


def test_application_that_the_master_ended_starts_again_and_no_locale_changes_its_results(
    cluster: Cluster, pairs: Pairs, tmp_path: Path
) -> None:
    """All machines have a locale in which the lower case of a letter differs. A constant expression
    is evaluated by the driver, one with a column by the executors."""
    defaults = tmp_path / "spark-defaults.conf"
    defaults.write_text(
        f"spark.executorEnv.JAVA_TOOL_OPTIONS {TURKISH}\n"
        f"spark.executor.defaultJavaOptions {TURKISH}\n"
        f"spark.executor.extraJavaOptions {TURKISH}\n"
    )
    environment = {"JAVA_TOOL_OPTIONS": TURKISH, "SPARK_CONF_DIR": str(tmp_path)}
    lower = {"driver": "lower('TITLE É')", "executor": "lower(concat('TITLE É', left.n))"}
    spec = changed(pairs.spec(), output__columns={"n": "left.n", **lower})
    cluster.have_workers(1)

    def has_restarted() -> bool:
        signal_all(cluster.executors(), signal.SIGKILL)
        status = job.status()
        return status is not None and status.totals.restarts > 0

    with job_on(cluster, spec, tmp_path, environment) as job:
        job.wait_for_state("RUNNING", CLUSTER_SECONDS)
        pairs.produce(range(BLOCK))
        wait_until(has_restarted, CLUSTER_SECONDS, "the master has ended the application")
        job.wait_for_state("RUNNING", CLUSTER_SECONDS)
        status = job.wait_for_offsets(left=BLOCK, right=BLOCK)
        assert status.last_failure is not None
        assert "its cluster ended the application" in status.last_failure.message
        assert 0 == job.terminate()
    results = sorted((result.value for result in pairs.received()), key=lambda value: value["n"])
    assert [
        {"n": n, "driver": "title é", "executor": f"title é{n}"} for n in range(BLOCK)
    ] == results


def test_real_time_engine_gets_the_slots_it_lacks_and_survives_the_loss_of_an_executor(
    cluster: Cluster, pairs: Pairs, tmp_path: Path
) -> None:
    """The interval in which the executor is lost lasts longer than the test: the query has read too
    few records for short intervals."""
    block = RECORDS_MIN // 8
    settings = {"checkpoint_interval": "1 hour"}
    spec = changed(pairs.spec(), engine="real_time", real_time=settings)
    cluster.have_workers(2)
    with job_on(cluster, spec, tmp_path) as job:
        failure = job.wait_for(lambda status: status.last_failure, "a refusal").last_failure
        assert failure is not None
        assert "needs 7 task slots" in failure.message
        assert "the executors have 2: add 5 cores" in failure.message

        cluster.have_workers(4, cores=3)
        pairs.produce(range(block))
        wait_for_numbers(pairs, block)
        job.wait_for(lambda status: status.phase is Phase.REAL_TIME, "the first interval")
        pairs.produce(range(block, 2 * block))
        wait_for_numbers(pairs, 2 * block)

        signal_all(cluster.executors()[-1:], signal.SIGKILL)
        pairs.produce(range(2 * block, 3 * block))
        wait_for_numbers(pairs, 3 * block)
        assert 0 == job.terminate()
    assert list(range(3 * block)) == pairs.numbers()


def wait_for_numbers(pairs: Pairs, count: int) -> None:
    """Wait for the results of the first numbers, each once."""
    expected = list(range(count))
    wait_until(lambda: expected == pairs.numbers(), CLUSTER_SECONDS, f"{count} results")
