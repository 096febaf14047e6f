"""A change of a running join: the old and the new query together deliver each result once."""

import json
from pathlib import Path

import pytest

from deploy.local.kafka import EmbeddedKafka
from job.join_spec.engine import Engine
from job.join_spec.join_conditions import JoinType
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
)
from tests.integration.jobs import Job
from tests.integration.jvms import SharedJvm

# Every row of this batch expires before the cut, and is not read again.
PAST: Rows = (
    [Row("past", 1), Row("past alone", 1)],
    [Row("past", 1), Row("past other", 1)],
)
# The watermark is 35 at the cut: left rows from 30 on and right rows from 33 on have not expired.
BEFORE: Rows = (
    [
        *(Row("expired", 25), Row("matched early", 31), Row("matched once", 31)),
        *(Row("waits", 38), Row("pair", 38), Row("z", 45)),
    ],
    [
        *(Row("matched early", 30), Row("matched once", 30), Row("waits too", 40)),
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
LATE_AGAIN: Rows = ([Row("past other", 2)], [Row("expired", 30)])
CLOSING: Rows = ([Row("closing left", 1000)], [Row("closing right", 1000)])


# For the code of a change, the other types are the same with exchanged sides. A run takes two jobs.
@pytest.mark.parametrize(
    ("join_type", "old_engine", "new_engine"),
    [
        (JoinType.INNER, Engine.MICRO_BATCH, Engine.MICRO_BATCH),
        (JoinType.LEFT_SEMI, Engine.MICRO_BATCH, Engine.MICRO_BATCH),
        (JoinType.LEFT_ANTI, Engine.MICRO_BATCH, Engine.REAL_TIME),
        (JoinType.FULL_OUTER, Engine.REAL_TIME, Engine.MICRO_BATCH),
    ],
)
def test_change_of_state_partitions_and_engine_gives_the_results_of_one_run(
    join_type: JoinType,
    old_engine: Engine,
    new_engine: Engine,
    kafka: EmbeddedKafka,
    tmp_path: Path,
    jvm: SharedJvm,
) -> None:
    """A job of the real-time engine has a separate JVM, with more task slots."""
    topics = Topics(kafka, f"changed_{join_type}", join_type)
    folders = created(tmp_path, "old", "new")
    old_spec = topics.spec(folders[0], topics.output, old_engine)
    new_spec = topics.spec(folders[1], topics.new_output, new_engine)
    jvms = {Engine.MICRO_BATCH: jvm, Engine.REAL_TIME: None}
    feeder = Feeder(topics)
    feed, counts = feeder.feed, feeder.counts

    with Job(old_spec, folders[0], jvms[old_engine]) as old:
        feed(old, PAST)
        feed(old, BEFORE)
        old.wait_for_watermark(T0 + 35_000)
        feed(old, LATE)
        written = ChangedJob(new_spec, folders[1], jvms[new_engine])
        specs = (str(old.spec_file), str(written.spec_file))

        planned = written.change(old, "change", *specs, "--plan", "--json")
        assert 0 == planned.returncode, planned.stderr
        facts = json.loads(planned.stdout)
        if join_type is JoinType.INNER:
            folder = str(folders[1] / "checkpoint")
            made = written.change(old, "checkpoint", "repartition", str(old.spec_file), folder)
        else:
            made = written.change(old, "change", *specs)
        assert 0 == made.returncode, made.stderr
        old.terminate()

    with written as new:
        feed(new, AFTER)
        feed(new, LATE_AGAIN)
        topics.feed(CLOSING)
        status = new.wait_for_watermark(T0 + 990_000)
        assert 0 == new.terminate()

    frozen = json.loads((folders[1] / "checkpoint" / "fingerprint.json").read_text())["settings"]
    assert str(WIDER) == frozen["state_partitions"]
    assert facts["records"] < sum(counts)
    assert (0, 2) == (facts["possibly_late_records"], facts["late_rows_of_the_job"])
    assert status.change is not None
    assert ("over", 0) == (status.change.phase, status.change.records_left)
    assert 2 == status.totals.late_rows
    received = check_results(topics, PAST, BEFORE, AFTER)
    if topics.output != topics.new_output:
        compared = new.command("compare", *specs, "--until", "2100-01-01T00:00:00Z", "--json")
        counts_by_kind = json.loads(compared.stdout)["counts"]
        only = [counts_by_kind.pop(kind) for kind in ("only_first", "only_second")]
        # No result of the old query is repeated by the new one.
        assert (1, {0}) == (compared.returncode, set(counts_by_kind.values()))
        assert len(received) == sum(only)
        assert all(only)
