"""The real-time engine on a real broker, against rows computed here by nested loops.

Pins the private Spark API of job/spark/interval_read.py and job/query/real_time.py.
"""

import json
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from deploy.local.kafka import EmbeddedKafka
from job.event_time.fair_reading import FIRST_BATCH_RECORDS
from job.join_spec.spec import JoinType
from job.plan.real_time import RECORDS_BEHIND_MAX
from job.protocol.status import JobStatus, Phase
from tests.integration.jobs import START_SECONDS, Job
from tests.integration.test_dead_letters import dead_letters
from tests.integration.topics import Sent, consume_all, produce
from tests.polling import wait_until

# Event times below are seconds after this, epoch milliseconds.
T0 = 1_700_000_000_000

SPEC = """
name: rt_{name}
kafka: {{bootstrap_servers: "{servers}"}}
left:
  topic: {name}.left
  schema: k STRING, t TIMESTAMP, a BIGINT
  key: [k]
  event_time: t
  watermark_delay: 10 seconds
  filter: a >= 0
right:
  topic: {name}.right
  schema: k STRING, t TIMESTAMP, b BIGINT
  key: [k]
  event_time: t
  watermark_delay: 10 seconds
join:
  type: {join_type}
  match_window: {{before: 2 seconds, after: 5 seconds}}
  condition: left.a < 100 and left.a <> right.b
output:
  topic: {name}.out
  columns: {{{columns}}}
  delivery: at_least_once
engine: real_time
real_time: {{experimental: true, checkpoint_interval: {interval}}}
checkpoint: {checkpoint}
{bad_records}
"""

Row = tuple[str | None, int, int]


class Topics:
    """The topics of one test, and what was sent to them."""

    def __init__(
        self,
        kafka: EmbeddedKafka,
        name: str,
        join_type: str,
        folder: Path,
        *,
        interval: str = "2s",
        partitions: int = 2,
    ) -> None:
        self.kafka, self.name = kafka, name
        self.join_type = JoinType(join_type)
        self.sent: dict[str, list[Row]] = {"left": [], "right": []}
        self._folder = folder
        self.interval = interval
        kafka.create_topics(
            [f"{name}.{part}" for part in ("left", "right", "out")], partitions=partitions
        )

    def spec(self, bad_records: str = "on_bad_record: drop") -> str:
        columns = {"k": "left.k", "lt": "left.t", "a": "left.a"}
        if self.join_type.shows_right:
            columns |= {"rk": "right.k", "rt": "right.t", "b": "right.b"}
        return SPEC.format(
            name=self.name,
            servers=self.kafka.bootstrap_servers,
            join_type=self.join_type,
            columns=", ".join(f"{name}: {column}" for name, column in columns.items()),
            checkpoint=self._folder / "checkpoint",
            interval=self.interval,
            bad_records=bad_records,
        )

    def send(self, left: list[Row], right: list[Row]) -> None:
        for side, rows, value in (("left", left, "a"), ("right", right, "b")):
            self.sent[side] += rows
            records = [{"k": k, "t": T0 + t * 1000, value: v} for k, t, v in rows]
            produce(self.kafka.bootstrap_servers, f"{self.name}.{side}", records)

    def results(self) -> Counter[str]:
        received = consume_all(self.kafka.bootstrap_servers, f"{self.name}.out")
        return Counter(_text(record.value) for record in received)

    def wait_for_results(self) -> None:
        expected = set(self.expected())
        missing = set(expected)

        def all_came() -> bool:
            missing.intersection_update(expected - set(self.results()))
            return not missing

        try:
            wait_until(all_came, START_SECONDS, f"{len(expected)} results have come")
        except AssertionError as error:
            raise AssertionError(f"missing: {sorted(missing)}") from error

    def expected(self) -> Counter[str]:
        """By nested loops; rows at or after `closing` are not known to be unmatched."""
        lefts = [row for row in self.sent["left"] if row[2] >= 0]
        rights = self.sent["right"]
        pairs = [
            (left, right)
            for left in lefts
            for right in rights
            if left[0] is not None
            and left[0] == right[0]
            and -2 <= right[1] - left[1] <= 5
            and left[2] < 100
            and left[2] != right[2]
        ]
        matched_left = {left for left, _ in pairs}
        matched_right = {right for _, right in pairs}
        unmatched_left = [row for row in lefts if row not in matched_left and row[1] < CLOSING_AT]
        unmatched_right = [
            row for row in rights if row not in matched_right and row[1] < CLOSING_AT
        ]
        found: list[tuple[Row | None, Row | None]] = []
        if self.join_type not in {JoinType.LEFT_SEMI, JoinType.LEFT_ANTI}:
            found += pairs
        if self.join_type is JoinType.LEFT_SEMI:
            found += [(left, None) for left in matched_left]
        if self.join_type in {JoinType.LEFT_OUTER, JoinType.FULL_OUTER, JoinType.LEFT_ANTI}:
            found += [(left, None) for left in unmatched_left]
        if self.join_type in {JoinType.RIGHT_OUTER, JoinType.FULL_OUTER}:
            found += [(None, right) for right in unmatched_right]
        return Counter(_text(self.result(left, right)) for left, right in found)

    def result(self, left: Row | None, right: Row | None) -> dict[str, Any]:
        value: dict[str, Any] = dict(zip(("k", "lt", "a"), _shown(left), strict=True))
        if self.join_type.shows_right:
            value |= dict(zip(("rk", "rt", "b"), _shown(right), strict=True))
        return value


# The watermark passes every window before it.
CLOSING_AT = 1000
CLOSING: tuple[list[Row], list[Row]] = (
    [("closing-left", CLOSING_AT, 1)],
    [("closing-right", CLOSING_AT, 1)],
)
FIRST: tuple[list[Row], list[Row]] = (
    [("x", 20, 1), ("x", 21, 2), ("edge", 20, 1), (None, 20, 1), ("f", 20, -1), ("big", 20, 100),
     ("same", 20, 7), ("late-partner", 24, 1)],
    [("x", 22, 5), ("edge", 25, 5), ("edge", 18, 6), ("edge", 26, 7), ("edge", 17, 8),
     (None, 20, 5), ("f", 20, 5), ("big", 20, 5), ("same", 20, 7), ("alone", 20, 5)],
)  # fmt: skip
SECOND: tuple[list[Row], list[Row]] = (
    [("x", 16, 3), ("alone", 40, 1), ("same", 18, 8)],
    [("late-partner", 28, 5), ("x", 23, 9), ("alone", 41, 2)],
)


def _shown(row: Row | None) -> tuple[str | None, str | None, int | None]:
    if row is None:
        return None, None, None
    milliseconds = T0 + row[1] * 1000
    at = datetime.fromtimestamp(milliseconds / 1000, UTC)
    return row[0], at.strftime("%Y-%m-%dT%H:%M:%S.000Z"), row[2]


def _text(value: dict[str, Any]) -> str:
    return json.dumps(value, sort_keys=True)


def wait_for(job: Job, condition: Callable[[JobStatus], Any], what: str) -> JobStatus:
    def reached() -> JobStatus | None:
        status = job.status()
        assert status is None or status.state != "FAILED", status.last_failure
        return status if status is not None and condition(status) else None

    return wait_until(reached, START_SECONDS, what)


def wait_for_intervals(job: Job) -> JobStatus:
    """Until the query runs in real time."""
    return wait_for(job, lambda status: status.phase is Phase.REAL_TIME, "the query has caught up")


@pytest.mark.parametrize("join_type", list(JoinType))
def test_join_type_gives_the_rows_of_nested_loops_in_both_phases(
    join_type: JoinType, kafka: EmbeddedKafka, tmp_path: Path
) -> None:
    topics = Topics(kafka, f"phases_{join_type}", join_type, tmp_path)
    topics.send(*FIRST)
    with Job(topics.spec(), tmp_path) as job:
        wait_for_intervals(job)
        topics.send(*SECOND)
        topics.send(*CLOSING)
        topics.wait_for_results()
        # Results are visible before the interval that counts them has ended.
        results = sum(topics.expected().values())
        status = wait_for(
            job,
            lambda status: (
                status.totals.output_records >= results and status.totals.left.records == 12
            ),
            "the last report",
        )
        assert 0 == job.terminate()

    assert topics.expected() == topics.results()
    assert 0 == status.totals.late_rows
    assert results == status.totals.output_records


def test_killed_interval_is_repeated_with_its_watermark(
    kafka: EmbeddedKafka, tmp_path: Path
) -> None:
    """The right row comes behind more records than the first batch reads. With the watermark of
    that batch it would be late, and the left row unmatched, though the pair is visible."""
    filler = [("filler", CLOSING_AT, n) for n in range(3 * FIRST_BATCH_RECORDS // 2)]
    topics = Topics(kafka, "killed", "full_outer", tmp_path, interval="1h", partitions=1)
    with Job(topics.spec(), tmp_path) as job:
        wait_for_intervals(job)
        topics.send([("x", 20, 1), *filler], [])
        topics.send([], [(None, CLOSING_AT, n) for n in range(len(filler))])
        topics.send([], [("x", 22, 5)])
        pair = _text(topics.result(("x", 20, 1), ("x", 22, 5)))
        wait_until(lambda: topics.results()[pair] == 1, START_SECONDS, "the pair is visible")
        job.kill_tree()

        topics.interval = "2s"
        job.spec_file.write_text(topics.spec())
        job.start()
        wait_until(lambda: topics.results()[pair] == 2, START_SECONDS, "the interval is repeated")
        wait_for(
            job,
            lambda status: status.last_batch and (status.last_batch.watermark_ms or 0) > T0,
            "the watermark has advanced after that",
        )
        status = wait_for(job, lambda status: status.totals.batches > 3, "an interval has ended")
        assert 0 == job.terminate()

    assert topics.results()[_text(topics.result(("x", 20, 1), None))] == 0
    assert 0 == status.totals.late_rows


def test_query_changes_back_to_micro_batches_behind_a_backlog(
    kafka: EmbeddedKafka, tmp_path: Path
) -> None:
    topics = Topics(kafka, "behind", "inner", tmp_path, interval="1s")
    with Job(topics.spec(), tmp_path) as job:
        wait_for_intervals(job)
        produce(
            kafka.bootstrap_servers,
            "behind.left",
            ({"k": str(n), "t": T0, "a": 1} for n in range(2 * RECORDS_BEHIND_MAX)),
        )
        wait_for(job, lambda status: status.phase is Phase.CATCH_UP, "the query catches up")
        wait_for_intervals(job)
        topics.send([], [("7", 1, 5)])
        wait_until(topics.results, START_SECONDS, "the last record is joined")
        assert 0 == job.terminate()


def test_query_obeys_all_commands_in_real_time(kafka: EmbeddedKafka, tmp_path: Path) -> None:
    topics = Topics(kafka, "obeys", "inner", tmp_path)
    with Job(topics.spec(), tmp_path) as job:
        for n, (command, state) in enumerate(
            [("pause", "PAUSED"), ("stop", "STOPPED"), ("restart", "RUNNING")]
        ):
            wait_for_intervals(job)
            job.ask(command)
            job.wait_for_state(state)
            topics.send([(command, 20, n)], [(command, 21, 50)])
            if state != "RUNNING":
                assert n == sum(topics.results().values())
                job.ask("resume")
            job.wait_for_state("RUNNING")
            topics.wait_for_results()
        job.ask("stop")
        job.wait_for_state("STOPPED")
        assert topics.expected() == topics.results()

        job.ask("reset", starts={"left": "earliest", "right": "earliest"})
        wait_for(
            job, lambda status: status.last_reset and status.last_reset.completed_at, "the reset"
        )
        job.ask("resume")
        wait_until(
            lambda: {2} == set(topics.results().values()), START_SECONDS, "all is joined again"
        )
        assert 0 == job.terminate()


def test_bad_records_and_null_keys_become_dead_letters_in_both_phases(
    kafka: EmbeddedKafka, tmp_path: Path
) -> None:
    topics = Topics(kafka, "dead", "left_outer", tmp_path)
    kafka.create_topics({"dead.letters": 1})
    policy = "dead_letter: {topic: dead.letters}\non_null_key: dead_letter"
    bad = [Sent("no json"), Sent({"k": "x"}), Sent({"k": None, "t": T0, "a": 1}), Sent(None)]
    reasons = {"malformed_json", "missing_event_time", "null_key", "tombstone"}

    def letters() -> Counter[str]:
        return Counter(letter.reason for letter in dead_letters(kafka, "dead.letters"))

    produce(kafka.bootstrap_servers, "dead.left", bad)
    with Job(topics.spec(policy), tmp_path) as job:
        wait_for_intervals(job)
        wait_until(
            lambda: dict.fromkeys(reasons, 1) == letters(), START_SECONDS, "letters of the backlog"
        )
        produce(kafka.bootstrap_servers, "dead.left", bad)
        topics.send([("y", 20, 1)], [("y", 21, 5)])
        topics.send(*CLOSING)
        wait_until(
            lambda: dict.fromkeys(reasons, 2) == letters(), START_SECONDS, "letters in real time"
        )
        topics.wait_for_results()
        status = wait_for(
            job,
            lambda status: status.totals.dead_letters["left"]["tombstone"] == 2,
            "the letters are counted",
        )
        assert 0 == job.terminate()

    assert dict.fromkeys(reasons, 2) == {
        reason: count for reason, count in status.totals.dead_letters["left"].items() if count
    }
    assert topics.expected() == topics.results()
