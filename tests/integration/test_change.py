"""A change of a running join: the old and the new query together deliver each result once."""

import json
import re
import shlex
from collections import Counter
from pathlib import Path

import httpx
import pytest
import yaml

from deploy.local.kafka import EmbeddedKafka
from job.protocol.status import JobStatus
from job.spec.engine import Engine
from job.spec.join_conditions import JoinOperator, JoinType
from tests.integration.changed_joins import (
    T0,
    WIDER,
    ChangedJob,
    Feeder,
    Row,
    Rows,
    Topics,
    check_results,
    created,
    killed_in_its_replay,
    results,
    shown,
    succeeds,
)
from tests.integration.failpoint import Failpoint
from tests.integration.jobs import Job
from tests.integration.jvms import SharedJvm
from tests.integration.services import running_service
from tests.unit.specs import changed

# Every row of this batch expires before the cut, and is not read again.
PAST: Rows = (
    [Row("past", 1), Row("past alone", 1)],
    [Row("past", 1), Row("past other", 1)],
)
# The watermark is 35 at the cut: left rows from 30 on and right rows from 33 on have not expired.
# The rows "read again" had expired, and are within the margin.
BEFORE: Rows = (
    [
        *(Row("expired", 25), Row("read again", 29)),
        *(Row("matched early", 31), Row("matched once", 31)),
        *(Row("waits", 38), Row("pair", 38), Row("z", 45)),
    ],
    [
        *(Row("read again too", 28), Row("matched early", 30), Row("matched once", 30)),
        Row("waits too", 40),
        *(Row("pair", 39), Row("z", 45)),
    ],
)
# Rows behind the watermark of 35. In a query that reads them again they would not have expired.
LATE: Rows = ([Row("late", 34)], [Row("late too", 35)])
AFTER: Rows = (
    [Row("waits too", 39), Row("pair", 37), Row("new", 36), Row("late too", 36)],
    [
        *(Row("late", 37), Row("waits", 36), Row("waits", 43), Row("pair", 36)),
        *(Row("matched early", 36), Row("late too", 40)),
    ],
)
# Rows after a second change.
AFTERWARDS: Rows = (
    [Row("again", 36), Row("late", 38)],
    [Row("again", 37), Row("pair", 40)],
)
LATE_AGAIN: Rows = ([Row("past other", 2)], [Row("expired", 30)])
CLOSING: Rows = ([Row("closing left", 1000)], [Row("closing right", 1000)])
# With timestamps later than the clock. Kafka accepts up to an hour.
SOON: Rows = ([Row("soon", 7000)], [Row("soon", 7000)])
SPARK, PROCESSOR = ((Engine.MICRO_BATCH, operator) for operator in JoinOperator)
REAL_TIME = (Engine.REAL_TIME, JoinOperator.STREAMJOIN)
REPLAY_POINTS_OF_REAL_TIME = ("after_delivery_of_0", "after_delivery_of_1")
"""The two batches of the replay: their markers are written, and Spark has not committed them."""


# For the code of a change, the other types are the same with exchanged sides. A run takes two jobs.
@pytest.mark.timeout(900)  # with the kills four
@pytest.mark.parametrize(
    ("join_type", "old_way", "new_way"),
    [
        (JoinType.INNER, PROCESSOR, PROCESSOR),
        (JoinType.LEFT_SEMI, SPARK, PROCESSOR),
        (JoinType.LEFT_OUTER, SPARK, REAL_TIME),
        (JoinType.FULL_OUTER, REAL_TIME, PROCESSOR),
    ],
)
def test_change_of_state_partitions_engine_and_operator_gives_the_results_of_one_run(
    join_type: JoinType,
    old_way: tuple[Engine, JoinOperator],
    new_way: tuple[Engine, JoinOperator],
    kafka: EmbeddedKafka,
    tmp_path: Path,
    jvm: SharedJvm,
    failpoint: Failpoint,
) -> None:
    """A job of the real-time engine has a separate JVM, with more task slots. It is killed in each
    batch of its replay. The topics get another partition between the change and the start."""
    topics = Topics(kafka, f"changed_{join_type}", join_type)
    folders = created(tmp_path, "old", "new", "shadow")
    old_spec = topics.spec(folders[0], topics.output, *old_way)
    new_spec = topics.spec(folders[1], topics.new_output, *new_way)
    jvms = {Engine.MICRO_BATCH: jvm, Engine.REAL_TIME: None}
    feeder = Feeder(topics)
    feed, counts = feeder.feed, feeder.counts

    with Job(old_spec, folders[0], jvms[old_way[0]]) as old:
        feed(old, PAST)
        feed(old, BEFORE)
        old.wait_for_watermark(T0 + 35_000)
        feed(old, LATE)
        written = ChangedJob(new_spec, folders[1], jvms[new_way[0]])
        specs = (str(old.spec_file), str(written.spec_file))

        planned = written.change(old, "change", *specs, "--plan", "--json")
        assert 0 == planned.returncode, planned.stderr
        facts = json.loads(planned.stdout)
        shadow = None
        if join_type is JoinType.LEFT_SEMI:
            shadow = ChangedJob(topics.shadow_spec(folders[2]), folders[2], jvm)
            made = written.change(old, "change", specs[0], str(shadow.spec_file), "--shadow")
            succeeds(made)
            comparison = re.search(r"then `streamjoin (.*)`", made.stdout)
            before_shadow = results(topics)
        if join_type is JoinType.INNER:
            before = old.status()
            run_id = before.run_id if before is not None else None
            refused = written.change(
                old, "checkpoint", "repartition", str(old.spec_file), "/proc/checkpoint"
            )
            assert (1, False) == (refused.returncode, "Traceback" in refused.stderr)
            assert "a checkpoint cannot be read or written" in refused.stderr
            running = old.status()
            assert running is not None
            assert (run_id, "RUNNING") == (running.run_id, running.state)
            folder = str(folders[1] / "checkpoint")
            made = written.change(old, "checkpoint", "repartition", str(old.spec_file), folder)
        else:
            made = written.change(old, "change", *specs)
        assert 0 == made.returncode, made.stderr
        old.terminate()
        topics.add_partition()

    points = REPLAY_POINTS_OF_REAL_TIME if new_way == REAL_TIME else ()
    with killed_in_its_replay(written, failpoint, points) as new:
        feed(new, AFTER)
        feed(new, LATE_AGAIN)
        feed(new, CLOSING)
        status = new.wait_for_watermark(T0 + 990_000)
        if shadow is not None:
            feed(new, SOON)
        assert 0 == new.terminate()

    frozen = json.loads((folders[1] / "checkpoint" / "fingerprint.json").read_text())["settings"]
    assert str(WIDER) == frozen["state_partitions"]
    assert facts["records"] < sum(counts)
    # The watermark may have advanced within an interval.
    assert old_way is REAL_TIME or facts["possibly_late_records"] == 0
    assert 2 == facts["late_rows_of_the_job"]
    assert status.change is not None
    assert ("over", 0) == (status.change.phase, status.change.records_left)
    assert 2 == status.totals.late_rows
    received = check_results(topics, PAST, BEFORE, AFTER, *([] if shadow is None else [SOON]))
    if shadow is not None:
        with shadow:
            shadow.wait_for_watermark(T0 + 6_990_000)
            assert 0 == shadow.terminate()
        assert comparison is not None
        compared = shadow.command(*shlex.split(comparison[1]))
        succeeds(compared)
        assert re.search(r"equal +1\n", compared.stdout)
        topics.outputs = {topics.shadow_output}
        ids = [record.result_id for record in (*before_shadow, *results(topics))]
        assert sorted(record.result_id for record in received) == sorted(ids)
    if topics.output != topics.new_output:
        compared = new.command("compare", *specs, "--until", "2100-01-01T00:00:00Z", "--json")
        counts_by_kind = json.loads(compared.stdout)["counts"]
        only = [counts_by_kind.pop(kind) for kind in ("only_first", "only_second")]
        # No result of the old query is repeated by the new one.
        assert (1, {0}) == (compared.returncode, set(counts_by_kind.values()))
        assert len(received) == sum(only)
        assert all(only)


@pytest.mark.timeout(900)  # five starts
def test_changed_window_and_type_apply_to_what_the_plan_names(
    kafka: EmbeddedKafka, tmp_path: Path, jvm: SharedJvm
) -> None:
    """The window is changed over HTTP: the job continues with the new spec, also after a restart
    with the old file."""
    topics = Topics(kafka, "changed_meaning", JoinType.LEFT_OUTER)
    folders = created(tmp_path, "old", "right")
    first, third = (topics.spec(folder, topics.output, Engine.MICRO_BATCH) for folder in folders)
    window = {"before": "2 seconds", "after": "12 seconds"}
    second = changed(first, join__match_window=window, checkpoint=str(folders[0] / "wider"))
    third = changed(third, join__match_window=window, join__type="right_outer")
    feeder = Feeder(topics)

    with Job(first, folders[0], jvm) as wider:
        feeder.feed(
            wider,
            (
                [*(Row("gone", 24), Row("expired", 25), Row("wide", 31), Row("solo", 36)),
                 *(Row("waits", 38), Row("z", 45))],
                [Row("wide", 40), Row("z", 45)],
            ),
        )  # fmt: skip
        wider.wait_for_watermark(T0 + 35_000)
        before_cut = [
            (Row("z", 45), Row("z", 45)),
            (Row("gone", 24), None),
            (Row("expired", 25), None),
        ]

        continues_without_a_refused_change(wider, changed(second, output__topic="missing"))
        with running_service(wider.socket) as service:
            effects = planned_and_changed_over_http(wider, service.client, second)
        assert any(text.startswith("A pair with at least one record after") for text in effects)
        assert any(text.startswith("Left rows that the old query has emitted") for text in effects)
        feeder.feed(wider, ([], [Row("expired", 36), Row("waits", 49)]))
        assert 0 == wider.terminate()
        assert first == wider.spec_file.read_text()
        wider.start()
        feeder.feed(
            wider,
            ([Row("opens", 55), Row("alone", 55), Row("x", 60)], [Row("right", 55), Row("y", 60)]),
        )
        status = wider.wait_for_watermark(T0 + 50_000)
        assert status.change is not None
        assert f"file:{folders[0]}/checkpoint" == status.change.old_checkpoint
        assert 0 == wider.terminate()
        wider.spec_file.write_text(second)
        # The pair of "wide" is kept back. "gone" is not emitted as unmatched again.
        in_window = [
            *((Row("expired", 25), Row("expired", 36)), (Row("waits", 38), Row("waits", 49))),
            (Row("solo", 36), None),
        ]

    right = ChangedJob(third, folders[1], jvm)
    effects = planned_and_changed(right, wider)
    assert (
        "Unmatched right rows before the cut are emitted if they expire after the cut." in effects
    )
    assert (
        "Unmatched left rows that had not expired at the cut are not emitted any more." in effects
    )
    with right:
        feeder.feed(right, ([], [Row("opens", 57)]))
        topics.feed(CLOSING)
        right.wait_for_watermark(T0 + 990_000)
        assert 0 == right.terminate()
        # "alone" and "x" are not emitted.
        of_right = [
            (Row("opens", 55), Row("opens", 57)),
            *((None, Row("right", 55)), (None, Row("y", 60))),
        ]

    expected = Counter(shown(*pair) for pair in [*before_cut, *in_window, *of_right])
    assert expected == Counter(tuple(found.value.values()) for found in results(topics))


@pytest.mark.timeout(600)
def test_change_over_http_keeps_the_jvm_and_gives_the_results_of_one_run(
    kafka: EmbeddedKafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To the real-time engine, with more state partitions and task slots, and back, then to more
    state partitions in the same Spark application. The second and the third query would fail at a
    bad record, but not at one that an old query has dropped. A change is undone before its query
    has delivered. The changes of a micro-batch query have a warm-up."""
    Failpoint(tmp_path, monkeypatch)
    monkeypatch.setenv("STREAMJOIN_TEST_WARM_UP_RECORDS", "1")
    topics = Topics(kafka, "changed_in_one_jvm", JoinType.LEFT_OUTER)
    (folder,) = created(tmp_path, "job")
    first, undone, second, third, fourth = (
        changed(topics.spec(folder, topics.output, engine), checkpoint=str(folder / name))
        for name, engine in (
            ("first", Engine.MICRO_BATCH),
            ("undone", Engine.MICRO_BATCH),
            ("second", Engine.REAL_TIME),
            ("third", Engine.MICRO_BATCH),
            ("fourth", Engine.MICRO_BATCH),
        )
    )
    second, third = (changed(spec, on_bad_record="fail") for spec in (second, third))
    feeder = Feeder(topics)

    with ChangedJob(first, folder) as job, running_service(job.socket) as service:
        feeder.feed(job, PAST)
        topics.feed_bad_record()
        feeder.counts[0] += 1
        feeder.feed(job, BEFORE)
        job.wait_for_watermark(T0 + 35_000)
        feeder.feed(job, LATE)
        jvm = job.jvm_pid
        planned_and_changed_over_http(job, service.client, undone, state_partitions=WIDER)
        undone_over_http(job, service.client, first)
        planned_and_changed_over_http(job, service.client, second, state_partitions=WIDER)
        feeder.feed(job, AFTER)
        refuses_an_undo(service.client)
        planned_and_changed_over_http(job, service.client, third)
        planned_and_changed_over_http(job, service.client, fourth, state_partitions=WIDER + 2)
        feeder.feed(job, AFTERWARDS)
        topics.feed(CLOSING)
        job.wait_for_watermark(T0 + 990_000)
        assert jvm == job.jvm_pid
        assert 0 == job.terminate()

    events = [json.loads(line) for line in job.log.read_text().splitlines() if line[:1] == "{"]
    warm_ups = [event for event in events if event.get("event", "").startswith("warm_up")]
    assert 3 * [("warm_up_ended", 1)] == [
        (event["event"], event.get("batches")) for event in warm_ups
    ], warm_ups
    assert [] == list(folder.rglob("warm-up"))
    partitions = [
        json.loads((folder / name / "fingerprint.json").read_text())["settings"]["state_partitions"]
        for name in ("third", "fourth")
    ]
    assert [str(WIDER), str(WIDER + 2)] == partitions
    check_results(topics, PAST, BEFORE, AFTER, AFTERWARDS)


def continues_without_a_refused_change(job: Job, spec: str) -> None:
    """The query does not stop for a change that is refused."""
    before = job.status()
    assert before is not None
    job.ask("change_plan", spec=spec)  # Plans the spec; its answer is the error of the change.
    assert job.ask("change", spec=spec)["error"] is None
    status = job.wait_for(
        lambda status: status.last_change and status.last_change.error, "the change is refused"
    )
    assert ("RUNNING", before.run_id) == (status.state, status.run_id)
    assert status.last_change is not None
    assert "missing" in str(status.last_change.error)
    assert status.change is None


def planned_and_changed_over_http(
    job: Job, service: httpx.Client, spec: str, state_partitions: int | None = None
) -> list[str]:
    """As `planned_and_changed`. Returns when the replay is over."""
    status = job.status()
    assert status is not None
    earlier = status.change

    def is_over(status: JobStatus) -> bool:
        change = status.change
        return change is not None and change != earlier and change.phase == "over"

    path, body = "/v1/query/change", {"spec": spec}
    wanted = {} if state_partitions is None else {"state_partitions": state_partitions}
    elsewhere = {"spec": changed(spec, checkpoint="/elsewhere/checkpoint")}
    assert 422 == service.post(path, json=elsewhere).status_code
    planned = service.post(path, params={"dry_run": True, **wanted}, json=body)
    assert 200 == planned.status_code, planned.text
    assert 202 == service.post(path, params=wanted, json=body).status_code
    over = job.wait_for(is_over, "the replay is over")
    assert over.last_failure is None
    shown = service.get("/v1/query/spec").json()
    assert yaml.safe_load(spec)["checkpoint"] == shown["checkpoint"]
    effects: list[str] = planned.json()["facts"]["effects"]
    return effects


def undone_over_http(job: Job, service: httpx.Client, old: str) -> None:
    """Returns when the query of `old` runs."""
    answer = service.post("/v1/query/change/undo")
    assert 202 == answer.status_code, answer.text
    job.wait_for(
        lambda status: status.state == "RUNNING" and status.change is None,
        "the old query continues",
    )
    shown = service.get("/v1/query/spec").json()
    assert yaml.safe_load(old)["checkpoint"] == shown["checkpoint"]


def refuses_an_undo(service: httpx.Client) -> None:
    """Once the query has delivered."""
    answer = service.post("/v1/query/change/undo")
    assert 409 == answer.status_code, answer.text
    assert "begun to deliver" in answer.json()["detail"]


def planned_and_changed(new: ChangedJob, old: Job) -> list[str]:
    """What the plan of the change means for results near the cut. Then the change is made."""
    specs = (str(old.spec_file), str(new.spec_file))
    planned = new.change(old, "change", *specs, "--plan", "--json")
    succeeds(planned)
    succeeds(new.change(old, "change", *specs))
    effects: list[str] = json.loads(planned.stdout)["effects"]
    return effects
