"""Dead letters: each arrives complete and once, and can be replayed."""

import json
import random
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest

from deploy.local.kafka import EmbeddedKafka
from job.dead_letters.headers import DeadLetter
from tests.integration.failpoint import Failpoint
from tests.integration.jobs import Job
from tests.integration.jvms import SharedJvm
from tests.integration.topics import Sent, add_partitions, consume_all, dead_letters, produce
from tests.unit.specs import changed

T0 = 1_700_000_000_000

_SPEC = """
name: {name}
kafka: {{bootstrap_servers: "{servers}"}}
left:
  topic: {name}.left
  schema: n BIGINT, t TIMESTAMP, pad STRING
  key: [n]
  event_time: t
  watermark_delay: 10 seconds
right:
  topic: {name}.right
  schema: n BIGINT, t TIMESTAMP, pad STRING
  key: [n]
  event_time: t
  watermark_delay: 10 seconds
  max_event_time_ahead: 1 hour
join: {{type: {join_type}, match_window: {{before: 1 minute, after: 1 minute}}}}
output:
  topic: {name}.out
  columns: {{n: left.n, left_pad: left.pad, right_pad: right.pad}}
  delivery: {delivery}
checkpoint: {checkpoint}
"""
ALL = {
    "dead_letter": {"topic": "{name}.dead"},
    "on_null_key": "dead_letter",
    "on_late_row": "dead_letter",
}


@dataclass
class Letters:
    """Topics, spec and dead letters of one test."""

    kafka: EmbeddedKafka
    name: str
    folder: Path
    delivery: str = "exactly_once"
    join_type: str = "inner"

    def create_topics(self, *, small: int = 1_000_000, cleanup_policy: str = "delete") -> None:
        """`small`: the largest record, in bytes, that the topics of the job accept.
        `cleanup_policy`: of the output topic."""
        self._create("left", "right")
        limit = {"max.message.bytes": str(small)}
        self._create("dead", **limit)
        self._create("out", **limit, **{"cleanup.policy": cleanup_policy})

    def _create(self, *parts: str, **config: str) -> None:
        topics = [f"{self.name}.{part}" for part in parts]
        self.kafka.create_topics(topics, partitions=1, config=config)

    def add_partition(self, part: str, number: int) -> None:
        """The topic then has the partitions 0 to `number`."""
        servers = self.kafka.bootstrap_servers
        add_partitions(servers, f"{self.name}.{part}", total=number + 1)

    def spec(self, **policy: Any) -> str:
        text = _SPEC.format(
            name=self.name,
            servers=self.kafka.bootstrap_servers,
            join_type=self.join_type,
            delivery=self.delivery,
            checkpoint=self.folder / "checkpoint",
        )
        written = json.loads(json.dumps(policy or ALL).replace("{name}", self.name))
        return text + "".join(f"{name}: {json.dumps(value)}\n" for name, value in written.items())

    def produce(self, side: str, records: Iterable[Any]) -> None:
        produce(self.kafka.bootstrap_servers, f"{self.name}.{side}", records)

    def results(self) -> list[int]:
        received = consume_all(self.kafka.bootstrap_servers, f"{self.name}.out")
        return sorted(record.value["n"] for record in received)

    def dead(self) -> list[DeadLetter]:
        return dead_letters(self.kafka, f"{self.name}.dead")


@pytest.fixture
def letters(kafka: EmbeddedKafka, tmp_path: Path, request: pytest.FixtureRequest) -> Letters:
    return Letters(kafka, f"dead{crc32(request.node.name.encode())}", tmp_path)


def row(n: int | None, at: float = 0, pad: str = "") -> dict[str, Any]:
    return {"n": n, "t": T0 + round(at * 1000), "pad": pad}


BAD: dict[str, Any] = {
    "tombstone": None,
    "malformed_json": b"\xff{not json",
    "schema_mismatch": '{"n": "one", "t": 1700000000000}',
    "missing_event_time": '{"n": 1}',
    "unparsable_event_time": '{"n": 1, "t": "yesterday"}',
    "absurd_event_time": '{"n": 1, "t": -5}',
    "future_event_time": '{"n": 1, "t": 32503680000000}',
    "null_key": json.dumps(row(None, 1)),
}
MESSAGES = {
    "tombstone": "the record has no value",
    "malformed_json": "the value is not one JSON object in UTF-8",
    "schema_mismatch": "not of the declared type: n BIGINT",
    "missing_event_time": "field t is missing or null",
    "unparsable_event_time": "field t is neither ISO-8601 (e.g. 2024-03-01T10:00:00Z, "
    "2024-03-01T11:00+01:00 or 20240301T100000Z) nor epoch milliseconds: yesterday",
    "absurd_event_time": "field t is 1969-12-31T23:59:59.995Z, before min_event_time "
    "1980-01-01T00:00:00Z",
    "future_event_time": "field t is more than 1 hour ahead of the record: 32503680000000",
    "null_key": "null in the key: n",
}


@pytest.mark.parametrize("delivery", ["exactly_once", "at_least_once"])
def test_record_of_every_reason_arrives_complete_from_each_side(
    letters: Letters, delivery: str, tmp_path: Path, jvm: SharedJvm
) -> None:
    letters.delivery = delivery
    letters.create_topics()
    with Job(letters.spec(), tmp_path, jvm) as job:
        for side in ("left", "right"):
            poison = [
                Sent(value, key=f"key of {reason}", headers={"trace": reason})
                for reason, value in BAD.items()
            ]
            letters.produce(side, [row(1), *poison, row(2)])
        total = len(BAD) + 2
        job.wait_for_offsets(left=total, right=total)
        for side in ("left", "right"):  # far ahead, then behind
            letters.produce(side, [row(3, 1000)])
        job.wait_for_offsets(left=total + 1, right=total + 1)
        letters.produce("left", [row(4, 1000)])
        letters.produce("right", [row(4, 1000)])
        job.wait_for_offsets(left=total + 2, right=total + 2)
        letters.produce("left", [Sent(row(5, 1), key="late", headers={"trace": "late"})])
        status = job.wait_for_offsets(left=total + 3, right=total + 2)
        assert 0 == job.terminate()

    dead = letters.dead()
    expected = {(side, reason) for side in ("left", "right") for reason in BAD} | {("left", "late")}
    assert expected == {(letter.side, letter.reason) for letter in dead}
    assert len(expected) == len(dead)
    for letter in dead:
        assert f"{letters.name}.{letter.side}" == letter.topic
        if letter.reason == "late":
            assert (total + 2, b"late") == (letter.offset, letter.key)
            assert letter.message.startswith("field t is 2023-11-14T22:13:21.000Z, not past the ")
            continue
        sent = Sent(BAD[letter.reason])
        assert (f"key of {letter.reason}".encode(), sent.payload) == (letter.key, letter.value)
        assert [("trace", letter.reason.encode())] == list(letter.original_headers)
        assert (0, 1 + list(BAD).index(letter.reason)) == (letter.partition, letter.offset)
        assert MESSAGES[letter.reason] == letter.message
        assert letter.timestamp_ms is not None
        assert letter.is_whole
    counted = {side: +Counter(reasons) for side, reasons in status.totals.dead_letters.items()}
    once = Counter(BAD.keys())
    assert {"left": once + Counter(["late"]), "right": once, "output": Counter()} == counted
    assert [1, 2, 3, 4] == letters.results()


def test_job_killed_before_or_after_the_dead_letters_neither_loses_nor_repeats_one(
    letters: Letters, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, jvm: SharedJvm
) -> None:
    """Only with Spark's operator are dead letters written after the results. The topic gets another
    partition after the batch was planned that runs again."""
    letters.create_topics()
    failpoint = Failpoint(tmp_path, monkeypatch)
    with Job(changed(letters.spec(), join__operator="spark"), tmp_path, jvm) as job:
        for side in ("left", "right"):
            letters.produce(side, [row(0)])
        job.wait_for_offsets(left=1, right=1)
        for number, (point, counted) in enumerate(
            {"after_all_commits": 1, "after_dead_letters": 0}.items(), start=1
        ):
            failpoint.arm("kill", point)
            letters.produce("left", [Sent(f"bad {number}"), row(number)])
            failpoint.wait()
            job.wait_for_kill()
            letters.add_partition("left", number)
            assert number - counted == len(letters.dead()), point

            job.start()
            status = job.wait_for_offsets(left=1 + 2 * number, right=1)
            assert counted == status.totals.dead_letters["left"]["malformed_json"], point
            assert [f"bad {n}".encode() for n in range(1, number + 1)] == [
                letter.value for letter in letters.dead()
            ], point
        letters.produce("right", [row(1), row(2)])
        job.wait_for_offsets(left=5, right=3)
        assert 0 == job.terminate()
    assert [0, 1, 2] == letters.results()


JOINS: dict[str, dict[str, Any]] = {
    "inner": {
        "join__condition": "left.pad <> 'a' AND right.pad <> 'b' AND left.pad <= right.pad",
        "output__filter": "n % 5 <> 0 AND right_pad <> 'd'",
        "left__filter": "n % 7 <> 0",
        "join__operator": "spark",
    },
    "left_outer": {
        "join__type": "left_outer",
        "join__condition": "left.pad <> 'a' AND right.pad <> 'b'",
        "output__filter": "n % 5 <> 0",
        "right__deduplicate": {"by": ["n", "pad"], "within": "1 minute"},
        "on_null_key": "pass",
    },
    "full_outer": {
        "join": {
            "type": "full_outer",
            "window": "20 seconds",
            "condition": "left.pad <> 'a'",
            "operator": "spark",
        },
        "right__filter": "pad <> 'c'",
        "on_null_key": "pass",
    },
}


@pytest.mark.parametrize("join", JOINS)
def test_late_rows_are_those_that_are_counted(
    letters: Letters, join: str, tmp_path: Path, jvm: SharedJvm
) -> None:
    letters.create_topics()
    chance = random.Random(join)
    with Job(changed(letters.spec(), **JOINS[join]), tmp_path, jvm) as job:
        for lap in range(4):
            for side in ("left", "right"):
                letters.produce(side, [generated(chance, at=lap * 30) for _ in range(150)])
            status = job.wait_for_offsets(left=150 * (lap + 1), right=150 * (lap + 1))
        assert 0 == job.terminate()

    late = [letter for letter in letters.dead() if letter.reason == "late"]
    assert 50 < status.totals.late_rows == len(late)
    assert len(late) == len({(letter.topic, letter.offset) for letter in late})
    assert "late_rows_differ" not in job.log.read_text()
    assert (status.totals.right.duplicates > 0) == ("right__deduplicate" in JOINS[join])


def generated(chance: random.Random, at: float) -> dict[str, Any]:
    """Some rows are far behind, some have no key."""
    n = None if chance.random() < 0.1 else chance.randrange(40)
    # Late also without a batch between two laps: Spark compares with the watermark of the previous
    # batch.
    return row(n, 100 + at + chance.uniform(-80, 15), chance.choice("abcd"))


def test_policy_fail_names_the_first_bad_record_and_policy_drop_continues(
    letters: Letters, tmp_path: Path, jvm: SharedJvm
) -> None:
    letters.create_topics()
    with Job(letters.spec(on_bad_record="fail"), tmp_path, jvm) as job:
        letters.produce("right", [row(1)])
        letters.produce("left", [row(1), Sent('{"n": 2, "t": "soon"}'), Sent("worse"), row(3)])
        failure = job.wait_for_failure(1)
        assert "bad_record" == failure.code
        assert f"left record {letters.name}.left/0/1 cannot be read" in failure.message
        assert "(unparsable_event_time): field t is neither ISO-8601" in failure.message
        job.ask("restart")
        job.wait_for_failure(2)
        assert [] == letters.results()
        job.terminate()

        job.spec_file.write_text(letters.spec(on_bad_record="drop"))
        job.start()
        letters.produce("right", [row(3)])
        job.wait_for_offsets(left=4, right=2)
        assert 0 == job.terminate()
    assert [1, 3] == letters.results()


def test_result_that_the_topic_refuses_is_a_dead_letter_and_counted(
    letters: Letters, tmp_path: Path, jvm: SharedJvm
) -> None:
    """A result is too large, or has no key although the topic is compacted. The other policies are
    in tests/semantics/test_unwritten_results.py."""
    letters.create_topics(small=20_000, cleanup_policy="compact")
    written = changed(letters.spec(), output__key="nullif(left.n, 5)")
    with Job(written, tmp_path, jvm) as job:
        poison = Sent(f'"{"x" * 25_000}"', key="bad")
        letters.produce("left", [row(1), row(2, pad="x" * 12_000), row(3)])
        letters.produce("right", [row(1), row(2, pad="y" * 12_000), row(3)])
        job.wait_for_offsets(left=3, right=3)
        letters.produce("left", [poison, row(4), row(5)])
        letters.produce("right", [row(4), row(5)])
        status = job.wait_for_offsets(left=6, right=5)
        assert 0 == job.terminate()

    assert [1, 3, 4] == letters.results()
    assert 1 == status.totals.too_large_results
    assert 1 == status.totals.keyless_results
    dead = {letter.reason: letter for letter in letters.dead()}
    result, record = dead["value_too_large"], dead["malformed_json"]
    keyless = dead["null_key"]
    assert ("output", f"{letters.name}.left", 5) == (keyless.side, keyless.topic, keyless.offset)
    assert "accepts no record without a key" in keyless.message
    assert "output" == result.side
    assert [
        ("streamjoin-id", f"{letters.name}.left/0/1|{letters.name}.right/0/1".encode())
    ] == list(result.original_headers)
    assert f"topic {letters.name}.out accepts 20000" in result.message
    # If a record is itself too large for the dead-letter topic, its value is omitted.
    assert ("left", "malformed_json", b"bad", None) == (
        record.side,
        record.reason,
        record.key,
        record.value,
    )
    assert [False] * 3 == [letter.can_be_replayed for letter in (result, record, keyless)]


def test_dead_letters_are_listed_and_replayed_once_and_a_second_failure_is_listed(
    letters: Letters, tmp_path: Path, jvm: SharedJvm
) -> None:
    letters.create_topics()
    wrong = "n BIGINT, t TIMESTAMP, pad STRING, extra BIGINT"

    def output_of(*words: str) -> list[str]:
        process = job.command("dead-letters", *words, str(job.spec_file))
        assert 0 == process.returncode, process.stderr
        return process.stdout.splitlines()

    with Job(changed(letters.spec(), left__schema=wrong), tmp_path, jvm) as job:
        # Headers with which a producer might hide a dead letter, break the commands or prevent the
        # replay.
        hiding = {"trace": "t", "__streamjoin.replayed": b"\xff"}
        mismatch = Sent({**row(1), "extra": "text"}, key="k", headers=hiding)
        spoofed = {
            "__streamjoin.replayed": f"{letters.name}.dead/0/0",
            "__streamjoin.errors.omitted.bytes": "5",
            "__streamjoin.errors.topic": "elsewhere",
            "__streamjoin.errors.partition": "none",
        }
        letters.produce("left", [mismatch, Sent("\x1b[2Jgarbage", headers=spoofed)])
        letters.produce("right", [row(1)])
        job.wait_for_offsets(left=2, right=1)
        assert 0 == job.terminate()

        first, content, second, garbage, total = output_of("list")
        assert f"{letters.name}.left/0/0  " in first
        assert first.endswith("left schema_mismatch: not of the declared type: extra BIGINT")
        assert content.startswith('    key k, value {"n": 1, ')
        assert "malformed_json" in second
        assert r"    key null, value \x1b[2Jgarbage" == garbage
        assert f"2 in {letters.name}.dead" == total
        assert [f"1 in {letters.name}.dead"] == output_of("list", "--reason", "malformed_json")[2:]
        assert "0 would be replayed" == output_of("replay", "--dry-run")[-1]

        job.spec_file.write_text(changed(letters.spec(), left__schema=wrong[:-6] + "STRING"))
        wanted, refused, _, _ = output_of("replay", "--dry-run")
        assert wanted == first
        assert refused.startswith("not replayed, would fail again (malformed_json: the value is ")
        assert "2 replayed" == output_of("replay", "--all")[-1].partition(":")[0]
        assert ["0 replayed"] == output_of("replay")
        assert [f"0 in {letters.name}.dead"] == output_of("list")

        job.start()
        # Two records and the marker of their transaction follow the first two.
        job.wait_for_offsets(left=5, right=1)
        assert 0 == job.terminate()
        assert [f"1 in {letters.name}.dead"] == output_of("list")[2:]
    assert [1] == letters.results()
    again = letters.dead()[-1]
    assert ("malformed_json", b"\x1b[2Jgarbage") == (again.reason, again.value)
    assert [
        *((name, content.encode()) for name, content in spoofed.items()),
        ("__streamjoin.replayed.from", f"{letters.name}.dead/0/1".encode()),
    ] == list(again.original_headers)
