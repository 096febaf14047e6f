"""Two join types, Kafka to Kafka, compared with nested loops in Python.

Each join is stopped and started between two batches of input: no row may be missing or repeated.
tests/semantics/test_differential.py compares joins of every type with the specification.
"""

import json
import re
from collections import Counter
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from deploy.local.kafka import EmbeddedKafka
from job.__main__ import app
from job.commands import spec_file
from job.spec.join_conditions import JoinType
from tests.integration.jobs import Job
from tests.integration.jvms import SharedJvm
from tests.integration.keyed_sides import (
    JAVA_PARTITIONS,
    KEYED_SIDES,
    LEFT_IN_ENVELOPES,
    OUTPUT_PARTITIONS,
    T0,
    change,
    filtered_changes,
)
from tests.integration.topics import Received, Sent, consume_all, produce
from tests.sql_worker import WorkerOfCommands
from tests.unit.specs import changed

SPEC = (
    "name: joined_{join_type}"
    + KEYED_SIDES
    + """
  condition: left.a < 100 and right.b <> 13 and left.a <> right.b
output:
  topic: {name}.out
  key: {key}
  partition_by: {partition_by}
  columns: {{{columns}}}
  headers: {{double: left.a * 2, of key: k}}
  timestamp: {timestamp}
  filter: coalesce(a, 0) <> 2
  delivery: {delivery}
checkpoint: {checkpoint}
on_bad_record: drop
"""
)

AT_LEAST_ONCE = JoinType.LEFT_SEMI
"""Written by Spark's sink, which sets no timestamp. A regular stop repeats no result. Another value
than the key chooses the partitions of the results."""
ENVELOPES = JoinType.FULL_OUTER
"""Its left rows are those of creates, updates and deletes in envelopes of Debezium."""


@dataclass(frozen=True)
class Left:
    k: str | None
    t: int
    a: int


@dataclass(frozen=True)
class Right:
    k: str | None
    t: int
    b: int


# Both bounds of the window hit and just missed, several matches, none, null keys, rows that fail
# each part of the condition, a left row that the filter drops, out of order within the delay.
BEFORE_THE_RESTART = (
    [Left("x", 20, 1), Left("x", 21, 2), Left("edge", 20, 1), Left(None, 20, 1), Left("f", 20, -1),
     Left("big", 20, 100), Left("same", 20, 7), Left("late-partner", 24, 1)],
    [Right("x", 22, 5), Right("edge", 25, 5), Right("edge", 18, 6), Right("edge", 26, 7),
     Right("edge", 17, 8), Right(None, 20, 5), Right("f", 20, 5), Right("big", 20, 5),
     Right("same", 20, 7), Right("alone", 20, 5)],
)  # fmt: skip
AFTER_THE_RESTART = (
    [Left("x", 16, 3), Left("alone", 40, 1), Left("same", 18, 8)],
    [Right("late-partner", 28, 5), Right("x", 15, 13), Right("x", 23, 9)],
)
# Far in the future: the watermark passes every window. The rows themselves stay in state.
CLOSING = ([Left("closing-left", 1000, 1)], [Right("closing-right", 1000, 1)])
FINAL_WATERMARK_MS = T0 + (1000 - 10) * 1000


@pytest.mark.parametrize("join_type", [JoinType.FULL_OUTER, JoinType.LEFT_SEMI])
def test_join_type_gives_the_rows_of_nested_loops_across_a_restart(
    join_type: JoinType,
    kafka: EmbeddedKafka,
    tmp_path: Path,
    jvm: SharedJvm,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(spec_file, "SqlWorker", WorkerOfCommands)
    name = f"joins.{join_type}"
    kafka.create_topics({f"{name}.left": 3, f"{name}.right": 2, f"{name}.out": OUTPUT_PARTITIONS})
    servers = kafka.bootstrap_servers

    def feed(rows: tuple[list[Left], list[Right]]) -> None:
        left, right = ([_value(row) for row in of_side] for of_side in rows)
        if join_type is ENVELOPES:
            left = [change(row, n) for n, row in enumerate(left)]
        produce(servers, f"{name}.left", left)
        produce(servers, f"{name}.right", right)

    with Job(_spec(join_type, name, servers, tmp_path), tmp_path, jvm) as job:
        feed(BEFORE_THE_RESTART)
        job.wait_for_offsets(left=len(BEFORE_THE_RESTART[0]), right=len(BEFORE_THE_RESTART[1]))
        assert 0 == job.terminate()

        filtered = filtered_changes("x", 20) if join_type is ENVELOPES else []
        produce(servers, f"{name}.left", map(Sent, filtered))
        feed(AFTER_THE_RESTART)
        feed(CLOSING)
        job.start()
        status = job.wait_for_watermark(FINAL_WATERMARK_MS)
        received = consume_all(servers, f"{name}.out")
        if join_type is ENVELOPES:
            assert_verified(job, servers, f"{name}.out", received)
        assert 0 == job.terminate()

    lefts = [*BEFORE_THE_RESTART[0], *AFTER_THE_RESTART[0]]
    rights = [*BEFORE_THE_RESTART[1], *AFTER_THE_RESTART[1]]
    assert _counted(_nested_loops(join_type, lefts, rights)) == _counted(r.value for r in received)
    assert len(received) == len({record.result_id for record in received})
    for record in received:
        number, k = record.value["a"], record.value["k"]
        headers = {"double": None if number is None else str(2 * number), "of key": k}
        assert {"streamjoin-id": record.result_id} | headers == record.headers
        if join_type is not AT_LEAST_ONCE:
            times = [record.value.get(name) for name in ("lt", "rt")]
            latest = max(datetime.fromisoformat(at) for at in times if at is not None)
            assert latest.timestamp() * 1000 == record.timestamp_ms
        partitioned = k if join_type is AT_LEAST_ONCE else record.key
        if partitioned is not None:
            assert JAVA_PARTITIONS[partitioned] == record.partition
    assert (0, len(filtered)) == (status.totals.late_rows, status.totals.left.filtered_records)
    assert {} == {reason: n for reason, n in status.totals.left.bad_records.items() if n}


def verified(job: Job, *options: str) -> Result:
    """`output verify` in this process."""
    command = ["output", "verify", str(job.spec_file), *options]
    return CliRunner().invoke(app, command, env={"STREAMJOIN_SOCKET": str(job.socket)})


def assert_verified(job: Job, servers: str, topic: str, received: list[Received]) -> None:
    """`output verify` finds no difference, and then the one that is written here."""
    found = verified(job, "--json")
    assert 0 == found.exit_code, found.output
    facts = json.loads(found.stdout)
    assert len(received) == facts["counts"]["agree"]
    # The closing rows have not expired.
    assert {"results": {}, "expected": {"not_emitted_yet": 2}} == facts["not_checked"]

    lefts, rights = ([each.result_id.split("|")[n] for each in received] for n in (0, 1))
    forged = f"{max(lefts)}|{max(rights)}"
    assert forged not in {record.result_id for record in received}
    produce(servers, topic, [Sent({}, "x", {"streamjoin-id": forged})])
    found = verified(job)
    assert 1 == found.exit_code
    assert re.search(rf"{re.escape(forged)} at {topic}/./[0-9]+: ", found.stdout), found.output


def _spec(join_type: JoinType, name: str, servers: str, folder: Path) -> str:
    of_sides = {
        "left": {"k": "left.k", "lt": "left.at", "a": "left.a"},
        "right": {"rk": "right.k", "rt": "right.t", "b": "right.b"},
    }
    columns = {k: text for side in join_type.shown_sides for k, text in of_sides[side].items()}
    at_least_once = join_type is AT_LEAST_ONCE
    text = SPEC.format(
        servers=servers,
        name=name,
        join_type=join_type,
        key="a" if at_least_once else "coalesce(k, rk)",
        columns=", ".join(f"{column}: {text}" for column, text in columns.items()),
        partition_by="k" if at_least_once else "null",
        delivery="at_least_once" if at_least_once else "exactly_once",
        timestamp="processing_time" if at_least_once else "event_time",
        checkpoint=folder / "checkpoint",
    )
    return changed(text, **LEFT_IN_ENVELOPES) if join_type is ENVELOPES else text


def _nested_loops(
    join_type: JoinType, lefts: list[Left], rights: list[Right]
) -> list[dict[str, Any]]:
    lefts = [left for left in lefts if left.a >= 0]
    pairs = [(left, right) for left in lefts for right in rights if _match(left, right)]
    matched_left = [pair[0] for pair in pairs]
    matched_right = [pair[1] for pair in pairs]
    rows: list[tuple[Left | None, Right | None]] = (
        [(left, None) for left in lefts if left in matched_left]
        if join_type is JoinType.LEFT_SEMI
        else [
            *pairs,
            *((left, None) for left in lefts if left not in matched_left),
            *((None, right) for right in rights if right not in matched_right),
        ]
    )
    return [_output(join_type, left, right) for left, right in rows if left is None or left.a != 2]


def _match(left: Left, right: Right) -> bool:
    in_time = left.t - 2 <= right.t <= left.t + 5
    condition = left.a < 100 and right.b != 13 and left.a != right.b
    return left.k is not None and left.k == right.k and in_time and condition


def _output(join_type: JoinType, left: Left | None, right: Right | None) -> dict[str, Any]:
    row = {"k": left and left.k, "lt": left and _iso(left.t), "a": left and left.a}
    if "right" in join_type.shown_sides:
        row |= {"rk": right and right.k, "rt": right and _iso(right.t), "b": right and right.b}
    return row


def _iso(seconds: int) -> str:
    minute, second = divmod(20 + seconds, 60)  # T0 is 2023-11-14T22:13:20Z
    return f"2023-11-14T22:{13 + minute:02}:{second:02}.000Z"


def _value(row: Left | Right) -> dict[str, Any]:
    return {**vars(row), "t": T0 + row.t * 1000}


def _counted(rows: Any) -> Counter[tuple[tuple[str, Any], ...]]:
    return Counter(tuple(sorted(row.items())) for row in rows)
