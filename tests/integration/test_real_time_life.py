"""Life of a query of the real-time engine: commands, dead letters, idle sides, an absent broker, a
new query that replaces it."""

import json
from collections import Counter
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from deploy.local.kafka import EmbeddedKafka
from job.dead_letters.headers import DeadLetter
from job.instants import utc_text
from job.protocol.status import Failure, JobStatus
from tests.brokers import BROKER_OPTIONS
from tests.integration.jobs import START_SECONDS, Job
from tests.integration.jvms import SharedJvm
from tests.integration.keyed_sides import T0
from tests.integration.real_time_topics import (
    CLOSING,
    CLOSING_AT,
    DELAY_SECONDS,
    FIRST,
    SECOND,
    Topics,
    text_of,
    wait_for_intervals,
)
from tests.integration.test_one_query_per_name import second_jvm
from tests.integration.test_real_time import jvm
from tests.integration.topics import Sent, add_partitions, consume_all, dead_letters, produce
from tests.polling import wait_until
from tests.unit.specs import changed

DELIVERY_TIMEOUT_SECONDS = 120.0

__all__ = ["jvm", "second_jvm"]  # fixtures


def test_query_obeys_all_commands_in_the_middle_of_an_interval(
    kafka: EmbeddedKafka, tmp_path: Path, jvm: SharedJvm
) -> None:
    """Each command interrupts the interval at once. The next start repeats the interval without the
    results that are delivered."""
    topics = Topics(kafka, "obeys", "inner", tmp_path, interval="1h", delivery="exactly_once")
    with Job(topics.spec(), tmp_path, jvm) as job:
        for n, (command, state) in enumerate(
            [("pause", "PAUSED"), ("stop", "STOPPED"), ("restart", "RUNNING")]
        ):
            run_id = wait_for_intervals(job).run_id
            if n == 0:
                wait_for_progress_without_records(job)
            topics.send([(command, 20, n)], [(command, 21, 50)])
            topics.wait_for_results()
            if n == 0:
                produce(kafka.bootstrap_servers, "obeys.left", [Sent("no json")])
                wait_for_live_figures(job)
            job.ask(command)
            job.wait_for_state(state)
            topics.send([(f"{command} 2", 20, n)], [(f"{command} 2", 21, 50)])
            if state != "RUNNING":
                assert f"{command} 2" not in str(topics.results())
                job.ask("resume")
            wait_for_another_run(job, run_id)
            topics.wait_for_results()
        job.ask("stop")
        job.wait_for_state("STOPPED")
        before = topics.results()
        assert topics.expected() == before

        job.ask("reset", starts={"left": "earliest", "right": "earliest"})
        job.wait_for(
            lambda status: status.last_reset and status.last_reset.completed_at, "the reset"
        )
        job.ask("resume")
        wait_until(
            lambda: all(topics.results()[text] > count for text, count in before.items()),
            START_SECONDS,
            "all is joined again",
        )
        assert 0 == job.terminate()
    log = job.log.read_text().splitlines()
    unwanted = (" ERROR ", "\tat ", "batch_interrupted")
    assert [] == [line for line in log if any(text in line for text in unwanted)]


def wait_for_progress_without_records(job: Job) -> None:
    """The first later progress can be that of a micro-batch; the next ones are the interval's."""
    seen = set()

    def has_moved(status: JobStatus) -> bool:
        seen.add(status.last_progress_at)
        return len(seen - {None}) > 3

    totals = job.wait_for(has_moved, "three times of later progress").totals
    assert (0, 0) == (totals.left.records, totals.right.records)


def wait_for_live_figures(job: Job) -> None:
    """One row of each side is read and joined in an interval that does not end, and a bad record is
    counted.

    A micro-batch may have ended before it, without a record.
    """

    def are_live(status: JobStatus) -> bool:
        watermark = datetime.fromtimestamp(T0 / 1000 + 20 - DELAY_SECONDS, UTC)
        return (
            (2, 1, 1, 1)
            == (
                status.totals.left.records,
                status.totals.right.records,
                status.totals.output_records,
                status.totals.left.bad_records["malformed_json"],
            )
            and watermark == status.side_watermark("left")
            and status.brokers is not None
            and {0} == set((status.brokers.left.behind_latest or {}).values())
        )

    status = job.wait_for(are_live, "live figures")
    ended = status.last_batch
    assert ended is None or (0, 0) == (ended.left.records, ended.right.records)
    assert status.last_progress_at is not None
    job.wait_for(
        lambda later: later.last_progress_at and later.last_progress_at > status.last_progress_at,
        "later figures",
    )


def wait_for_another_run(job: Job, run_id: str | None) -> None:
    job.wait_for(lambda status: status.run_id != run_id, "another run")


def state_rows(job: Job, key: str) -> Any:
    """The left rows of the key in state, as of the last interval that ended."""
    return job.ask("state", side="left", key=[key], limit=10)["result"]["rows"]


def failed_checks(output: str) -> list[str]:
    return [line for line in output.splitlines() if line.startswith("FAILED")]


def letters_counted(status: JobStatus) -> dict[tuple[str, str], int]:
    """Dead letters by side and reason."""
    return {
        (side, reason): count
        for side, counts in status.totals.dead_letters.items()
        for reason, count in counts.items()
        if count
    }


def test_dead_letters_idle_sides_state_and_checkpoint(
    kafka: EmbeddedKafka, tmp_path: Path, jvm: SharedJvm
) -> None:
    topics = Topics(
        *(kafka, "dead", "left_outer", tmp_path),
        idle_after="2 seconds",
        delivery="exactly_once",
    )
    kafka.create_topics({"dead.letters": 1})
    policy = """
        dead_letter: {topic: dead.letters}
        on_null_key: dead_letter
        on_late_row: dead_letter
    """
    bad = [Sent("no json"), Sent({"k": "x"}), Sent({"k": None, "t": T0, "a": 1}), Sent(None)]
    late = [Sent({"k": "y", "t": T0 + 20_000, "a": 1, "b": 5})]
    bad_letters = {
        ("left", reason): 1
        for reason in ("malformed_json", "missing_event_time", "null_key", "tombstone")
    }
    late_letters = {("left", "late"): 1, ("right", "late"): 1}
    expected: Counter[tuple[str, str]] = Counter()

    def wait_for_letters(phase: str) -> None:
        wait_until(
            lambda: expected == Counter((letter.side, letter.reason) for letter in letters()),
            START_SECONDS,
            f"{phase}: {expected}",
        )

    def letters() -> list[DeadLetter]:
        return dead_letters(kafka, "dead.letters")

    def send_late() -> None:
        for side in ("left", "right"):
            produce(kafka.bootstrap_servers, f"dead.{side}", late)
        expected.update(late_letters)

    produce(kafka.bootstrap_servers, "dead.left", bad)
    expected.update(bad_letters)
    with Job(topics.spec(dedent(policy)), tmp_path, jvm) as job:
        wait_for_letters("backlog")
        wait_for_intervals(job)
        produce(kafka.bootstrap_servers, "dead.left", bad)
        expected.update(bad_letters)
        topics.send([("y", 20, 1), ("alone", 20, 1)], [("y", 21, 5)])
        topics.close(job)
        wait_for_letters("real time")
        topics.wait_for_results()
        send_late()
        wait_for_letters("real time")
        job.ask("pause")
        job.wait_for_state("PAUSED")
        send_late()
        job.ask("resume")
        wait_for_letters("catch-up")
        job.wait_for(
            lambda status: status.totals.late_rows == 4 and letters_counted(status) == expected,
            "the late rows and the dead letters are counted",
        )
        before = topics.results()
        assert topics.expected() == before

        wait_for_intervals(job)
        topics.send([("lonely", CLOSING_AT + 100, 1), ("last", CLOSING_AT + 2000, 2)], [])
        unmatched = {
            text_of(topics.result(row, None))
            for row in [*CLOSING[0], ("lonely", CLOSING_AT + 100, 1)]
        }
        wait_until(
            lambda: unmatched <= set(topics.results()), START_SECONDS, "the right side is idle"
        )
        assert {"right": True} == job.wait_for(lambda status: status.idle, "idle sides").idle
        job.wait_for(lambda _: state_rows(job, "last"), "the row is committed")
        explained = job.ask("explain", key=["last"], limit=10)["result"]
        assert 0 == job.terminate()
    assert before + Counter(unmatched) == topics.results()
    assert 1 == len(explained["left"]["rows"])

    spec, backup = str(job.spec_file), str(tmp_path / "backup")
    for arguments in (["verify", spec], ["backup", spec, backup], ["restore", spec, backup]):
        done = job.command("checkpoint", *arguments)
        assert (0, []) == (done.returncode, failed_checks(done.stdout)), done.stderr
    shown = job.command("state", spec, "--side", "left", "--key", "last")
    [row] = [json.loads(line) for line in shown.stdout.splitlines()[1:]]
    assert 2 == row["row"]["a"]
    with Job(job.spec_file.read_text(), tmp_path, jvm) as job:
        topics.send([], [("last", CLOSING_AT + 2001, 5)])
        pair = ("last", CLOSING_AT + 2000, 2), ("last", CLOSING_AT + 2001, 5)
        result = text_of(topics.result(*pair))
        wait_until(lambda: topics.results()[result], START_SECONDS, "the restored row is joined")

    watermark = datetime.fromtimestamp(T0 / 1000 + CLOSING_AT - DELAY_SECONDS, UTC)
    late_at = datetime.fromtimestamp(T0 / 1000 + 20, UTC)
    behind = f"is {utc_text(late_at)}, not past the watermark {utc_text(watermark)}"
    assert {
        f"field at {behind}",
        f"event_time coalesce(t, record_timestamp) {behind}",
    } == {letter.message for letter in letters() if letter.reason == "late"}


def test_transaction_at_the_end_of_a_quiet_partition_holds_nothing_back(
    kafka: EmbeddedKafka, tmp_path: Path, jvm: SharedJvm
) -> None:
    """Real-time mode reads no marker of a transaction and no aborted record, so its position stays
    before them: the partition must count as read to its end. The interval does not end."""
    topics = Topics(
        *(kafka, "transacted", "left_outer", tmp_path),
        idle_after="2 seconds",
        interval="1h",
        delivery="exactly_once",
    )
    with Job(topics.spec(), tmp_path, jvm) as job:
        run_id = wait_for_intervals(job).run_id
        topics.send_in_transactions([("quiet", 20, 1)], [("other", 20, 2)], partition=0)
        topics.send_in_transactions(*CLOSING, partition=1)
        topics.wait_for_results()
        status = job.wait_for(
            lambda status: (
                status.idle.get("right")
                and set(behind(status).values()) == {0}
                and status.totals.unmatched_results
            ),
            "the right side is idle, all is read, and the unmatched rows are counted",
        )
        assert run_id == status.run_id

        add_partitions(kafka.bootstrap_servers, "transacted.left", "transacted.right", total=3)
        pair = ("added", CLOSING_AT + 1, 3), ("added", CLOSING_AT + 1, 4)
        topics.send_in_transactions([pair[0]], [pair[1]], partition=2)
        topics.wait_for_results()
        assert 0 == job.terminate()
    assert topics.expected() == topics.results()


def behind(status: JobStatus) -> dict[int, int]:
    assert status.brokers is not None
    return status.brokers.right.behind_latest or {}


def test_query_survives_a_broker_that_is_away(tmp_path: Path, jvm: SharedJvm) -> None:
    """Its left rows are in envelopes of Debezium."""
    with EmbeddedKafka(tmp_path / "kafka", jvm_options=BROKER_OPTIONS) as kafka:
        topics = Topics(kafka, "away", "full_outer", tmp_path, in_envelopes=True)
        topics.send(*FIRST)
        with Job(topics.spec(), tmp_path, jvm) as job:
            wait_for_intervals(job)
            topics.send(*SECOND)
            kafka.kill()
            # A result that was not sent yet expires after Kafka's delivery.timeout.ms.
            status = job.wait_for(
                lambda status: status.last_failure,
                "the query fails",
                timeout=DELIVERY_TIMEOUT_SECONDS + START_SECONDS,
            )
            kafka.start()
            topics.send(*CLOSING)
            topics.wait_for_results()
            assert 0 == job.terminate()
        assert set(topics.expected()) == set(topics.results())

    assert status.last_failure is not None
    assert status.last_failure.retryable
    assert f"lost Kafka at {kafka.bootstrap_servers}" in status.last_failure.message


@pytest.mark.timeout(600)
def test_new_query_replaces_a_running_one_and_both_deliver_each_of_their_results_once(
    kafka: EmbeddedKafka,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    jvm: SharedJvm,
    second_jvm: SharedJvm,
) -> None:
    """The old query is writing results, in the middle of an interval."""
    topics = Topics(kafka, "replaced", "inner", tmp_path, interval="1h", delivery="exactly_once")
    folder = tmp_path / "new"
    folder.mkdir()
    new_spec = changed(topics.spec(), checkpoint=str(folder / "checkpoint"))
    numbers = count()

    def send_pair() -> None:
        key = f"k{next(numbers)}"
        topics.send([(key, 20, 1)], [(key, 21, 5)])

    def failure_of_the_old_query() -> Failure | None:
        send_pair()
        status = old.status()
        return status.last_failure if status is not None and status.state == "FAILED" else None

    def ids() -> Counter[str]:
        return Counter(
            result.result_id for result in consume_all(kafka.bootstrap_servers, "replaced.out")
        )

    with Job(topics.spec(), tmp_path, jvm) as old:
        wait_for_intervals(old)
        send_pair()
        topics.wait_for_results()
        monkeypatch.setenv("STREAMJOIN_NEW_QUERY", "true")
        with Job(new_spec, folder, second_jvm) as new:
            fenced = wait_until(failure_of_the_old_query, START_SECONDS, "the old query has failed")
            old.ask("restart")
            refused = old.wait_for_failure(2)
            send_pair()
            new.wait_for(lambda _: len(ids()) == len(topics.sent["left"]), "all results")
            assert 0 == new.terminate()
        assert 1 == old.terminate()

    old_query = json.loads((tmp_path / "checkpoint/query/metadata").read_text())["id"]
    commits = consume_all(kafka.bootstrap_servers, "rt_replaced.commits")
    of_old_query = Counter(
        result_id
        for record in commits
        if record.value["query_id"] == old_query
        for result_id in record.value.get("ids", ())
    )
    delivered = ids()
    assert Counter(delivered.keys()) + of_old_query == delivered
    assert 0 < of_old_query.total() < len(delivered)
    assert "fenced" == fenced.code
    assert "taken over" in fenced.message
    assert "That query has replaced this one" in refused.message
