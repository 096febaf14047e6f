"""State lookups, offsets and resets of a real job on a real broker."""

import re
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from deploy.local.kafka import EmbeddedKafka
from job.checkpoint.reset import PendingReset
from job.protocol.reports import ResetReport
from job.protocol.status import JobStatus
from tests.integration.jobs import START_SECONDS, Job
from tests.integration.jvms import SharedJvm
from tests.integration.pairs import T0, Pairs
from tests.integration.topics import READ_SECONDS, produce
from tests.polling import wait_until
from tests.unit.specs import changed


@pytest.fixture
def pairs(kafka: EmbeddedKafka, tmp_path: Path, request: pytest.FixtureRequest) -> Pairs:
    pairs = Pairs(kafka, f"lookups{crc32(request.node.name.encode())}", tmp_path)
    pairs.create_topics()
    return pairs


def look_up(job: Job, side: str, *key: str) -> dict[str, Any]:
    """Also right after another lookup: each waits for its turn, none is refused as busy."""
    return job.ask("state", side=side, key=key, limit=10)


def wait_for_reset(job: Job) -> ResetReport:
    def done() -> ResetReport | None:
        status = job.status()
        report = status.last_reset if status else None
        return report if report is not None and report.completed_at is not None else None

    return wait_until(done, START_SECONDS, "the checkpoint has been reset")


def test_rows_of_a_key_are_returned_with_times_match_and_offset(
    pairs: Pairs, tmp_path: Path, jvm: SharedJvm
) -> None:
    with Job(pairs.spec(join_type="left_outer"), tmp_path, jvm) as job:
        pairs.produce(range(3))
        produce(pairs.kafka.bootstrap_servers, f"{pairs.name}.left", [{"n": 7, "t": T0}])
        job.wait_for_offsets(left=4, right=3)

        [row] = look_up(job, "left", "1")["result"]["rows"]
        assert {"n": 1, "t": "2023-11-14T22:13:20.001Z"} == row["row"]
        assert "2023-11-14T22:13:20.001000Z" == row["event_time"]
        assert "2023-11-14T22:13:30.001000Z" == row["leaves_after"]
        assert (f"{pairs.name}.left", True) == (row["topic"], row["matched"])
        [unmatched] = look_up(job, "left", "7")["result"]["rows"]
        assert unmatched["matched"] is False
        assert [] == look_up(job, "right", "7")["result"]["rows"]
        shown = job.command("state", str(job.spec_file), "--key", "7")
        assert "1 left row with key ['7'] in state after batch" in shown.stdout, shown.stderr
        assert "request" == look_up(job, "left", "seven")["error"]["code"]
        assert "request" == look_up(job, "left", "1", "2")["error"]["code"]

        job.ask("pause")
        job.wait_for_state("PAUSED")
        assert 1 == len(look_up(job, "right", "2")["result"]["rows"])
        counts = job.ask("state_count")["result"]
        assert (4, 1, 3) == (
            counts["left"]["rows"],
            counts["left"]["unmatched_rows"],
            counts["right"]["rows"],
        )

        job.ask("stop")
        job.wait_for_state("STOPPED")
        refusal = look_up(job, "left", "1")["error"]
        assert "it is STOPPED: `streamjoin state` reads it" in refusal["message"]
        assert "conflict" == refusal["code"]
        assert ["stop", "resume", "reset", "undo"] == refusal["allowed"]


def test_records_of_a_key_are_explained_with_the_facts_of_all_topics(
    pairs: Pairs, tmp_path: Path, jvm: SharedJvm
) -> None:
    spec = changed(
        pairs.spec(join_type="left_outer"),
        output__filter="left.n <> 8",
        on_bad_record=None,
        dead_letter={"topic": f"{pairs.name}.dead"},
    )
    name, servers = pairs.name, pairs.kafka.bootstrap_servers
    pairs.kafka.create_topics([f"{name}.dead"])
    with Job(spec, tmp_path, jvm) as job:

        def explained(key: int) -> str:
            answer = job.ask("explain", key=[str(key)], limit=10)
            return "\n".join(answer["result"]["sentences"])

        job.wait_for_state("RUNNING")
        pairs.produce([1])
        produce(servers, f"{name}.left", [{"n": 1, "t": T0 + 300_001}, {"n": 7}, {"n": 8, "t": T0}])
        produce(servers, f"{name}.right", [{"n": 8, "t": T0}])
        job.wait_for_offsets(left=4, right=2)

        of_1 = explained(1)
        assert re.search(rf"matched right {name}.right/./.: the result is {name}.out/./.", of_1)
        assert "waits for a right row until the watermark passes 2023-11-14T22:18:30.001Z" in of_1
        assert "is 5 minutes before it, outside of the window: a right row matches from" in of_1
        assert re.search(rf"Read {name}.left, .* and {name}.out from 20", of_1)
        bad = explained(7)
        assert "is a bad record (missing_event_time): field t is missing or null; its dead" in bad
        assert f"its dead letter is {name}.dead/0/" in bad
        job.ask("pause")
        job.wait_for_state("PAUSED")
        produce(servers, f"{name}.left", [{"n": 8, "t": T0}])
        paused = explained(8)
        assert "The query is PAUSED and emits no rows until it is resumed." in paused
        assert "and output.filter (left.n <> 8) dropped the result." in paused
        assert "is not read yet" in paused


NEW_COORDINATOR = {KafkaError.NOT_COORDINATOR, KafkaError.COORDINATOR_LOAD_IN_PROGRESS}


def committed(pairs: Pairs) -> int:
    """Sum of the offsets of the group for lag tools."""
    consumer = Consumer(
        {
            "bootstrap.servers": pairs.kafka.bootstrap_servers,
            "group.id": f"streamjoin-{pairs.name}",
        }
    )
    places = [
        TopicPartition(f"{pairs.name}.{side}", number)
        for side in ("left", "right")
        for number in range(2)
    ]
    try:
        offsets = consumer.committed(places, READ_SECONDS)
    except KafkaException as error:
        # The first request makes the broker create the topic of the group offsets.
        if error.args[0].code() not in NEW_COORDINATOR:
            raise
        return 0
    finally:
        consumer.close()
    return sum(max(0, place.offset) for place in offsets)  # below 0: none is committed


def test_topic_joined_with_itself_gives_each_pair_once_and_its_lag_is_visible(
    pairs: Pairs, tmp_path: Path, jvm: SharedJvm
) -> None:
    spec = changed(
        pairs.spec(),
        left__filter="n < 100",
        right__filter="n >= 100",
        right__topic=f"{pairs.name}.left",
        right__key=["n - 100"],
    )
    with Job(spec, tmp_path, jvm) as job:
        rows = [{"n": n, "t": T0 + n} for n in (*range(10), *range(100, 110))]
        produce(pairs.kafka.bootstrap_servers, f"{pairs.name}.left", rows)
        job.wait_for_offsets(left=20, right=20)
        wait_until(lambda: committed(pairs) == 20, START_SECONDS, "the group has the offsets")
        assert 0 == job.terminate()
    assert list(range(10)) == pairs.numbers()
    assert "offsets_not_committed" not in job.log.read_text()


def test_reset_keeps_the_old_checkpoint_and_reads_from_the_start_positions(
    pairs: Pairs, tmp_path: Path, jvm: SharedJvm
) -> None:
    with Job(pairs.spec(), tmp_path, jvm) as job:
        pairs.produce(range(4))
        job.wait_for_offsets(left=4, right=4)
        starts = {"left": "earliest", "right": "earliest"}
        assert "conflict" == job.ask("reset", starts=starts)["error"]["code"]
        assert "invalid_request" == job.ask("reset")["error"]["code"]

        job.ask("stop")
        job.wait_for_state("STOPPED")
        job.ask("reset", starts=starts)
        meanwhile = job.ask("reset", starts={"left": "latest", "right": "latest"})["error"]
        assert ("conflict", ["stop", "resume"]) == (meanwhile["code"], meanwhile["allowed"])
        report = wait_for_reset(job)
        assert report.error is None
        assert report.old_checkpoint is not None
        aside = Path(report.old_checkpoint.removeprefix("file:"))
        assert ["fingerprint.json", "query", "topics.json"] == sorted(
            path.name for path in aside.iterdir() if not path.name.startswith(".")
        )
        job.ask("resume")
        job.wait_for_offsets(left=4, right=4)
        assert sorted([*range(4), *range(4)]) == pairs.numbers()

        job.ask("stop")
        stopped = job.wait_for_state("STOPPED")
        assert stopped.last_batch is not None
        to_left = dict.fromkeys(stopped.last_batch.left.end_offsets, 0)
        job.ask("reset", starts={"left": to_left, "right": "2020-01-01T00:00:00Z"})
        wait_for_reset(job)
        job.ask("resume")
        job.wait_for_offsets(left=4, right=4)
        assert 12 == len(pairs.numbers())

    with Job(pairs.spec(), tmp_path, jvm) as again:
        pairs.produce([99])
        again.wait_for_offsets(left=5, right=5)
    assert 13 == len(pairs.numbers())

    checkpoint = aside.parent
    pending = PendingReset(left="earliest", right="earliest", aside="aside-of-a-killed-job")
    (checkpoint / PendingReset.file_name).write_text(pending.model_dump_json())
    with Job(pairs.spec(), tmp_path, jvm) as again:
        again.wait_for_offsets(left=5, right=5)
    assert 18 == len(pairs.numbers())
    assert not (checkpoint / PendingReset.file_name).exists()
    assert (checkpoint / pending.aside / "query").exists()


def test_offsets_progress_failures_and_plan_are_reported_and_results_have_the_headers_of_the_spec(
    pairs: Pairs, tmp_path: Path, jvm: SharedJvm
) -> None:
    spec = changed(pairs.spec(), output__headers={"next": "n + 1", "none": "nullif(n, n)"})
    with Job(spec, tmp_path, jvm) as job:
        pairs.produce(range(10))
        job.wait_for_offsets(left=10, right=10)
        wait_until(lambda: committed(pairs) == 20, START_SECONDS, "the group has the offsets")

        batches = job.ask("progress")["result"]["batches"]
        assert 10 == sum(batch["left"]["records"] for batch in batches)
        assert [] == job.ask("failures")["result"]["failures"]
        plan = job.ask("plan")["result"]
        assert f"Join {pairs.name}" in plan["text"]
        assert {"next": "n + 1", "none": "nullif(n, n)"} == plan["facts"]["output_headers"]
        received = wait_until(
            lambda: found if len(found := pairs.received()) == 10 else None, 30, "ten results"
        )
        for record in received:
            assert str(record.value["n"] + 1) == record.headers["next"]
            assert record.headers["none"] is None
        assert pairs.name == plan["spec"]["name"] == plan["facts"]["name"]

        job.ask("pause")
        job.wait_for_state("PAUSED")
        pairs.produce(range(10, 15))

        def behind() -> JobStatus | None:
            status = job.status()
            left = status.brokers.left.behind_latest if status and status.brokers else None
            return status if left is not None and sum(left.values()) == 5 else None

        status = wait_until(behind, START_SECONDS, "the lag grows while the query is paused")
        assert status.brokers is not None
        headroom = status.brokers.right.retention_headroom
        assert headroom is not None
        assert 10 == sum(headroom.values())
