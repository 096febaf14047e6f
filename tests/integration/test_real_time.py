"""The real-time engine on a real broker, against rows computed here by nested loops.

Pins the private Spark API of job/spark/interval_read.py and job/query/query_hooks.py.
"""

import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.local.kafka import EmbeddedKafka
from job.event_time.fair_reading import FIRST_BATCH_RECORDS
from job.plan.real_time import RECORDS_BEHIND_MAX
from job.protocol.status import Phase
from job.spec.join_conditions import JoinType
from job.spec.sides import SIDES
from job.spec.value_format import Format
from tests.integration.jobs import START_SECONDS, Job
from tests.integration.jvms import SharedJvm
from tests.integration.keyed_sides import T0
from tests.integration.real_time_topics import (
    CLOSING,
    CLOSING_AT,
    FIRST,
    SECOND,
    Topics,
    generated,
    text_of,
    wait_for_intervals,
)
from tests.integration.topics import Sent, produce
from tests.polling import wait_until
from tests.registry_stub import RegistryStub
from tests.unit.specs import changed

EMITTED_WITHIN_SECONDS = 10.0


@pytest.fixture(scope="module")
def jvm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SharedJvm]:
    """Its first job gives the Spark context the settings of the real-time engine, and task slots
    for topics with two partitions."""
    with SharedJvm(tmp_path_factory.mktemp("jvm")) as shared:
        yield shared


@pytest.fixture
def registry() -> Iterator[RegistryStub]:
    with RegistryStub() as stub:
        yield stub


@pytest.mark.parametrize(
    ("join_type", "output_format", "is_cut"),
    [(JoinType.FULL_OUTER, Format.AVRO, True), (JoinType.LEFT_SEMI, Format.PROTOBUF, False)],
)
def test_join_type_gives_the_rows_of_nested_loops_in_both_phases(
    join_type: JoinType,
    output_format: Format,
    is_cut: bool,
    kafka: EmbeddedKafka,
    tmp_path: Path,
    jvm: SharedJvm,
    registry: RegistryStub,
) -> None:
    """Chosen and random rows, and values that cannot be read, in Avro and Protobuf. A cut interval
    is repeated. tests/semantics/test_real_time_join.py compares joins of every type with the
    specification."""
    topics = Topics(
        *(kafka, f"phases_{join_type}", join_type, tmp_path),
        registry=registry,
        output_format=output_format,
        delivery="exactly_once",
    )
    bad = topics.send_bad()
    topics.send(*FIRST)
    topics.send(*generated(join_type, 0))
    with Job(topics.spec(f"dead_letter: {{topic: {topics.dead}}}"), tmp_path, jvm) as job:
        wait_for_intervals(job)
        bad += topics.send_bad()
        topics.send(*(a + b for a, b in zip(SECOND, generated(join_type, 1), strict=True)))
        if is_cut:
            job.ask("restart")
        topics.close(job)
        topics.wait_for_results()
        # Results are visible before the interval that counts them has ended. Those of a cut
        # interval are not counted.
        results = sum(topics.expected().values())
        left = len(topics.sent["left"]) + bad.total() // len(SIDES)
        status = job.wait_for(
            lambda status: (
                is_cut
                or (status.totals.output_records >= results and status.totals.left.records == left)
            ),
            "the last report",
        )
        assert 0 == job.terminate()

    assert topics.expected() == topics.results()
    assert bad == topics.letters()
    assert 0 == status.totals.late_rows
    assert is_cut or results == status.totals.output_records


BUSY_ROWS = 1_000
BUSY = "left.k = 'x' or length(sha2(repeat(cast(left.a + right.b as string), 100), 512)) = 0"
"""Takes some microseconds for each pair of rows whose key is not x, and is false for it."""


def test_rows_that_wait_for_a_busy_join_do_not_become_late(
    kafka: EmbeddedKafka, tmp_path: Path, jvm: SharedJvm
) -> None:
    """The watermark passes the right row x while the join compares the rows before it."""
    topics = Topics(
        *(kafka, "busy", "inner", tmp_path),
        interval="1h",
        partitions=1,
        delivery="exactly_once",
    )
    with Job(changed(topics.spec(), join__condition=BUSY), tmp_path, jvm) as job:
        wait_for_intervals(job)
        topics.send([*[("busy", 20, 1)] * BUSY_ROWS, ("x", 20, 1)], [])
        closing = [(None, CLOSING_AT, 1)]
        topics.send(closing, [*[("busy", 21, 5)] * BUSY_ROWS, ("x", 21, 5), *closing])
        pair = text_of(topics.result(("x", 20, 1), ("x", 21, 5)))
        wait_until(lambda: topics.results()[pair] == 1, START_SECONDS, "the pair is visible")
        assert 0 == job.terminate()


def test_killed_interval_is_repeated_with_its_watermark(
    kafka: EmbeddedKafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The right row comes behind more records than the first batch reads. With the watermark of
    that batch it would be late, and the left row unmatched, though the pair is visible. The
    repetition does not write the pair again."""
    # As in a container with a limit of one CPU: the number of task slots does not depend on it.
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", "-XX:ActiveProcessorCount=1")
    filler = [("filler", CLOSING_AT, n) for n in range(3 * FIRST_BATCH_RECORDS // 2)]
    topics = Topics(
        *(kafka, "killed", "full_outer", tmp_path),
        interval="1h",
        partitions=1,
        delivery="exactly_once",
    )
    with Job(topics.spec(), tmp_path) as job:
        wait_for_intervals(job)
        topics.send([("x", 20, 1)], [(None, CLOSING_AT, n) for n in range(len(filler))])
        topics.send([], [("x", 22, 5)])
        pair = text_of(topics.result(("x", 20, 1), ("x", 22, 5)))
        wait_until(lambda: topics.results()[pair] == 1, START_SECONDS, "the pair is visible")
        # Only now does the left side let the watermark advance.
        topics.send(filler, [])
        job.kill_tree()

        topics.interval = "2s"
        job.spec_file.write_text(topics.spec())
        job.start()
        job.wait_for(
            lambda status: status.last_batch and (status.last_batch.watermark_ms or 0) > T0,
            "the interval is repeated, and the watermark has advanced after that",
        )
        status = job.wait_for(lambda status: status.totals.batches > 3, "an interval has ended")
        assert 0 == job.terminate()

    results = topics.results()
    assert {1} == set(results.values())
    assert 1 == results[pair]
    assert 0 == results[text_of(topics.result(("x", 20, 1), None))]
    assert 0 == status.totals.late_rows


def test_delivery_changes_in_both_directions_and_an_older_copy_is_refused(
    kafka: EmbeddedKafka, tmp_path: Path, jvm: SharedJvm
) -> None:
    topics = Topics(kafka, "copied", "inner", tmp_path, delivery="exactly_once")
    checkpoint, copy, backup = (tmp_path / name for name in ("checkpoint", "copy", "backup"))

    def run(key: str) -> None:
        """Join a pair in an interval. With exactly-once delivery the stop cuts the interval."""
        wait_for_intervals(job)
        topics.send([(key, 20, 1)], [(key, 21, 5)])
        topics.wait_for_results()
        assert 0 == job.terminate()

    def count(key: str) -> int:
        return topics.results()[text_of(topics.result((key, 20, 1), (key, 21, 5)))]

    with Job(topics.spec(), tmp_path, jvm) as job:
        run("before")
        for topics.delivery in ("at_least_once", "exactly_once"):
            job.spec_file.write_text(topics.spec())
            job.start()
            run(topics.delivery)
        shutil.copytree(checkpoint, copy)
        job.start()
        run("after the copy")
        # At-least-once delivery may have repeated the interval before it.
        assert [1, 1, 1] == [
            count(key) for key in ("at_least_once", "exactly_once", "after the copy")
        ]

        shutil.rmtree(checkpoint)
        copy.rename(checkpoint)
        job.start()
        refused = job.wait_for_failure(1)
        assert 1 == job.terminate()
        spec = str(job.spec_file)
        for arguments in (["backup", spec], ["restore", spec, "--results-again"]):
            done = job.command("checkpoint", *arguments, str(backup))
            assert 0 == done.returncode, done.stderr
        job.start()
        run("restored")

    assert "checkpoint" == refused.code
    assert f"`streamjoin checkpoint restore {spec} FOLDER --results-again`" in refused.message
    assert [1, 2, 1] == [count(key) for key in ("at_least_once", "after the copy", "restored")]


def test_query_changes_back_to_micro_batches_behind_a_backlog(
    kafka: EmbeddedKafka, tmp_path: Path, jvm: SharedJvm
) -> None:
    topics = Topics(kafka, "behind", "inner", tmp_path, interval="1s")
    with Job(topics.spec(), tmp_path, jvm) as job:
        wait_for_intervals(job)
        produce(
            kafka.bootstrap_servers,
            "behind.left",
            ({"k": str(n), "t": T0, "a": 1} for n in range(40 * RECORDS_BEHIND_MAX)),
        )
        job.wait_for(lambda status: status.phase is Phase.CATCH_UP, "the query catches up")
        wait_for_intervals(job)
        topics.send([], [("7", 1, 5)])
        wait_until(topics.results, START_SECONDS, "the last record is joined")
        assert 0 == job.terminate()


def test_query_that_fails_at_bad_records_names_the_record_in_both_phases(
    kafka: EmbeddedKafka, tmp_path: Path, jvm: SharedJvm
) -> None:
    topics = Topics(kafka, "fails", "inner", tmp_path, interval="1h", partitions=1)
    with Job(topics.spec("on_bad_record: fail"), tmp_path, jvm) as job:
        wait_for_intervals(job)
        produce(kafka.bootstrap_servers, "fails.right", [{"k": "x", "t": T0, "b": 1}])
        produce(kafka.bootstrap_servers, "fails.right", [Sent("no json")])
        in_real_time = job.wait_for_failure(1)
        job.ask("restart")
        in_catch_up = job.wait_for_failure(2)

    for failure in (in_real_time, in_catch_up):
        assert "bad_record" == failure.code
        assert (
            "right record fails.right/0/1 cannot be read (malformed_json): the value is not one "
            "JSON object in UTF-8. To continue, set `on_bad_record: drop` or a dead_letter topic, "
            "then start again"
        ) == failure.message


def test_row_that_was_unmatched_within_an_interval_is_in_no_pair_after_a_crash(
    kafka: EmbeddedKafka, tmp_path: Path, jvm: SharedJvm
) -> None:
    """The watermark advances while an interval runs."""
    topics = Topics(
        *(kafka, "live", "full_outer", tmp_path), interval="1h", delivery="exactly_once"
    )
    spec = topics.spec(f"on_late_row: dead_letter\ndead_letter: {{topic: {topics.dead}}}")
    left, late = ("a", 20, 1), ("a", 22, 5)
    unmatched, pair = (text_of(topics.result(left, right)) for right in (None, late))
    with Job(spec, tmp_path, jvm) as job:
        wait_for_intervals(job)
        topics.send([left], [])
        topics.send(*CLOSING)
        began = time.monotonic()
        wait_until(lambda: topics.results()[unmatched], START_SECONDS, "the unmatched row")
        assert time.monotonic() - began < EMITTED_WITHIN_SECONDS
        # In the same run the row is late, by a watermark that the next run does not have.
        topics.send([], [late])
        wait_until(lambda: topics.letters().total(), START_SECONDS, "the late row")
        job.kill_tree()

        job.start()
        wait_for_intervals(job)
        topics.send([("b", CLOSING_AT, 1)], [("b", CLOSING_AT, 5)])
        both = text_of(topics.result(("b", CLOSING_AT, 1), ("b", CLOSING_AT, 5)))
        wait_until(lambda: topics.results()[both], START_SECONDS, "the pair of the next run")
        status = job.wait_for(lambda status: status.totals.batches, "the repetition has ended")
        assert 0 == job.terminate()

    assert (1, 0, 1) == tuple(topics.results()[text] for text in (unmatched, pair, both))
    assert [(f"{topics.name}.right", "late")] == [each[:2] for each in topics.letters().elements()]
    assert 1 == status.totals.late_rows
