"""A change while the real-time engine repeats an interrupted interval.

Results of the interval are delivered. The rest of them is behind the last batch, where the change
would cut.
"""

import json
from pathlib import Path

import pytest

from deploy.local.kafka import EmbeddedKafka
from job.spec.engine import Engine
from tests.faults.faulty_job import FaultyJob
from tests.faults.harness import SIDES, Harness
from tests.faults.oracle import check_results
from tests.faults.proxy import Api, Point, Proxy
from tests.faults.slots import HELD_SECONDS, Slots
from tests.faults.test_real_time import kill_jvm, wait_for_interval
from tests.integration.jobs import START_SECONDS
from tests.integration.jvms import SharedJvm
from tests.polling import wait_until
from tests.unit.specs import changed

PAIRS = 100
FIRST_BATCH_RECORDS = 20
"""Records of a side in the first batch of a repetition."""
# Longer than the pairs take to be delivered. The command can wait for the end of an interval.
INTERVAL = {"checkpoint_interval": "25 seconds"}


@pytest.mark.timeout(600)
def test_change_during_a_repetition_neither_loses_nor_repeats_a_result(
    kafka: EmbeddedKafka, proxy: Proxy, tmp_path: Path, jvm: SharedJvm
) -> None:
    """The job makes the first change, after a kill of its JVM. The command makes the second one,
    after a restart of the query. Both are requested during the first batch of the repetition."""
    limits = {
        "STREAMJOIN_TEST_COMMIT_SECONDS": str(HELD_SECONDS),
        "STREAMJOIN_TEST_FIRST_BATCH_RECORDS": str(FIRST_BATCH_RECORDS),
    }
    harness = Harness(
        kafka, "rtchanged", tmp_path, engine=Engine.REAL_TIME, proxy=proxy, environment=limits
    )
    first = changed(harness.job.spec_file.read_text(), real_time=INTERVAL)
    second = changed(first, checkpoint=str(tmp_path / "second"))
    # Without the proxy, which ends before the shared JVM.
    third = changed(
        second,
        kafka__bootstrap_servers=kafka.bootstrap_servers,
        checkpoint=str(tmp_path / "third"),
        engine="micro_batch",
        real_time=None,
    )
    # The fence commits first.
    first_batch = [Point(Api.END_TXN, Slots(harness).ids[0], passing=1) for _ in range(2)]
    (tmp_path / "third-job").mkdir()
    last = FaultyJob(third, tmp_path / "third-job", limits, jvm)
    harness.job.spec_file.write_text(first)
    harness.pairs(1)  # the first batch: without state there is nothing to continue
    with harness.job as job:
        deliver_pairs_in_an_interval(harness)
        kill_jvm(job)
        proxy.catch(first_batch[0])
        proxy.wait_until_caught(first_batch[0])
        job.wait_for_state("RUNNING")
        for _ in range(2):
            for call in ("change_plan", "change"):
                assert job.ask(call, spec=second)["error"] is None
            waiting = job.wait_for(
                lambda status: status.last_change and status.last_change.records_left == 2 * PAIRS,
                "the change waits, and the records are counted",
            ).last_change
            assert waiting is not None
            assert "200 records are left" in str(waiting.waits_for)
            if is_logged(job, "change_cancelled"):
                break
            cancelled = job.ask("cancel")
            assert cancelled["error"] is None
            assert "has cancelled the change" in cancelled["status"]["last_change"]["error"]
            assert "RUNNING" == cancelled["status"]["state"]
        proxy.release()
        job.wait_for(lambda status: status.change and status.change.phase == "over", "a change")
        check(harness)

        deliver_pairs_in_an_interval(harness)
        job.spec_file.write_text(second)
        proxy.catch(first_batch[1])
        job.ask("restart")
        proxy.wait_until_caught(first_batch[1])
        job.wait_for_state("RUNNING")
        own, last.socket = last.socket, job.socket
        files = (str(job.spec_file), str(last.spec_file))
        command = last.command_in_background("change", *files)
        waits = "before the query can stop"
        wait_until(
            lambda: last.log.exists() and waits in last.log.read_text(),
            START_SECONDS,
            "the command waits",
        )
        proxy.release()
        assert 0 == command.wait(START_SECONDS), last.log.read_text()
        last.socket = own
        assert 0 == job.terminate()
    with last:
        harness.pairs(1)
        wait_for_results(harness)
        check(harness)
        assert 0 == last.terminate()


def deliver_pairs_in_an_interval(harness: Harness) -> None:
    wait_for_interval(harness.job)
    harness.pairs(PAIRS)
    wait_for_results(harness)


def wait_for_results(harness: Harness) -> None:
    """Until each pair that was sent is delivered."""
    rows = len(harness.records(harness.topic("left")))
    output = harness.topic("out")

    def are_delivered() -> bool:
        return len({record.headers["streamjoin-id"] for record in harness.records(output)}) == rows

    wait_until(are_delivered, START_SECONDS, f"{rows} results are delivered")


def check(harness: Harness) -> None:
    inputs = (harness.records(harness.topic(side)) for side in SIDES)
    result = check_results(*inputs, harness.records(harness.topic("out")))
    assert [] == list(result.problems)


def is_logged(job: FaultyJob, event: str) -> bool:
    lines = job.log.read_text().splitlines()
    return any(line[:1] == "{" and json.loads(line).get("event") == event for line in lines)
