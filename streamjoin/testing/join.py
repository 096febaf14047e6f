"""A running join and the steps of a test: send rows, advance the watermark, expect results."""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, Self

import httpx
from testcontainers.core.network import Network

from job.instants import utc_text
from job.spec.sides import SIDES, Side
from streamjoin.testing.containers import Containers
from streamjoin.testing.differences import differences
from streamjoin.testing.images import Images
from streamjoin.testing.spec import SpecAtTest
from streamjoin.testing.topics import Output, Place, Record, Row, Topics
from streamjoin.testing.waiting import wait_until

# A batch takes a second or less. The first batch, or a batch on a busy machine, takes many seconds.
EXPECT_SECONDS = 120.0

Fields = Mapping[str, Any]
Sendable = Fields | str | bytes | None | Record
"""Text and bytes are sent unchanged, None is a tombstone."""


class RunningJoin:
    """`with broker.start("join.yaml") as join:` starts a join and waits until it is ready."""

    def __init__(
        self, spec: SpecAtTest, images: Images, network: Network, topics: Topics, servers: str
    ) -> None:
        self._spec = spec
        self._topics = topics
        self._servers = servers
        self._containers = Containers(spec, images, network)
        self._open = ExitStack()
        # Positions of the rows that `advance_watermark` sent.
        self._clock: set[Place] = set()

    def __enter__(self) -> Self:
        # Chained joins share topics: an existing topic belongs to another join.
        missing = set(self._spec.topics) - self._topics.names()
        with ExitStack() as opened:
            opened.callback(self._topics.delete, missing | {self._spec.commit_topic})
            self._topics.create(sorted(missing))
            self._output = Output(self._servers, self._spec.spec.output.topic)
            opened.callback(self._output.close)
            opened.enter_context(self._containers)
            self._open = opened.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._open.close()

    # Input

    def left(self, *rows: Sendable) -> None:
        """Send rows to the left topic, in this order."""
        self._send("left", rows)

    def right(self, *rows: Sendable) -> None:
        """Send rows to the right topic, in this order."""
        self._send("right", rows)

    def advance_watermark(
        self,
        to: datetime | str,
        *,
        left: Fields | None = None,
        right: Fields | None = None,
        timeout: float = EXPECT_SECONDS,
    ) -> None:
        """Wait until the watermark is at `to` or later and expired unmatched rows are emitted.

        Only rows advance the watermark, so each side that is behind receives a row of nulls with a
        later event time, which matches nothing. `expect` ignores the results of these rows. If the
        schema or key of a side needs more than nulls, pass the fields as `left` and `right`.
        Raises AssertionError after `timeout` seconds.
        """
        target = _moment(to)
        self._wait_until_processed(timeout)
        query = self.query()
        given = {"left": left, "right": right}
        for side in SIDES:
            written = self._spec.side(side)
            newest = query[side]["watermark"]
            if newest is None or _moment(newest) < target:
                row = {
                    **(given[side] or {}),
                    written.event_time: utc_text(target + written.watermark_delay),
                }
                self._clock.update(self._send(side, [row]))
        self._wait_until_processed(timeout)
        reached = self.query()["watermark"]
        if reached is None or _moment(reached) < target:
            raise AssertionError(
                f"the watermark is {reached} and not {utc_text(target)}: a row of nulls with that "
                f"event time does not advance it. Pass the fields of a readable row: "
                f"advance_watermark(left=…, right=…).\n{self._status()}"
            )

    # Results

    def expect(self, *rows: Fields, timeout: float = EXPECT_SECONDS) -> None:
        """Expect exactly these results since the last call, in any order.

        Only the named fields are compared. Waits until all records of both topics are processed,
        and with `idle_after`, which follows the clock, until the results exist. Raises
        AssertionError with the missing and the unexpected results.
        """
        results: list[Row] = []

        def describe() -> str:
            found = differences(rows, [row.value for row in results])
            return f"the results differ from the expected ones:\n{found}\n{self._status()}"

        def has_all_results() -> bool:
            results.extend(row for row in self._output.new_rows() if not row.places & self._clock)
            return not differences(rows, [row.value for row in results]).missing

        self._wait_until_processed(timeout)
        wait_until(has_all_results, timeout if self._spec.follows_clock else 0, describe)
        if differences(rows, [row.value for row in results]):
            raise AssertionError(describe())

    def query(self) -> dict[str, Any]:
        """Response of `GET /v1/query`: state, watermark, late rows, failures."""
        return wait_until(
            lambda: self._containers.answer("/v1/query"), EXPECT_SECONDS, self._status
        )

    @property
    def http(self) -> httpx.Client:
        """HTTP client of the service, with control scope."""
        return self._containers.http

    # Failures

    def crash(self) -> None:
        """Kill the job with SIGKILL and start it again on the same checkpoint."""
        self._containers.crash_job()

    # Inside

    def _send(self, side: Side, rows: Sequence[Sendable]) -> list[Place]:
        records = [row if isinstance(row, Record) else Record(row) for row in rows]
        timed = [(record, self._timestamp(side, record)) for record in records]
        return self._topics.send(self._spec.topic(side), timed)

    def _timestamp(self, side: Side, record: Record) -> datetime:
        """Kafka timestamp of a record. Default: its event time, which may not be ahead of it."""
        if record.timestamp is not None:
            return _moment(record.timestamp)
        fields = record.value if isinstance(record.value, Mapping) else {}
        try:
            return _moment(fields.get(self._spec.side(side).event_time))
        except (TypeError, ValueError, OverflowError):
            return datetime.now(UTC)

    def _wait_until_processed(self, timeout: float) -> None:
        """Wait until all records are read, and a batch has run with the resulting watermark."""
        ends = {side: self._topics.end(self._spec.topic(side)) for side in SIDES}
        wait_until(
            lambda: self._is_processed(ends),
            timeout,
            lambda: f"not all records are read.\n{self._status()}",
        )

    def _is_processed(self, ends: Mapping[Side, int]) -> bool:
        offsets = self._containers.answer("/v1/query/offsets")
        if not offsets or any(
            _read(offsets[side], self._spec.topic(side)) < ends[side] for side in SIDES
        ):
            self._must_not_have_failed()
            return False
        return self._watermark_is_applied(self.query())

    def _watermark_is_applied(self, query: dict[str, Any]) -> bool:
        sides = [query[side]["watermark"] for side in SIDES]
        if None in sides or not self._spec.waits_for_watermark:
            return True
        due, applied = min(map(_moment, sides)), query["watermark"]
        return applied is not None and _moment(applied) >= due

    def _must_not_have_failed(self) -> None:
        query = self._containers.answer("/v1/query")
        if query.get("state") == "FAILED":
            raise AssertionError(f"the query has failed: {query['last_failure']['message']}")

    def _status(self) -> str:
        """State of the query, for the message of a failed expectation."""
        query = self._containers.answer("/v1/query")
        if not query:
            return f"the service does not answer; log of the job:\n{self._containers.logs()}"
        names = ("state", "watermark", "watermark_held_back_by", "late_rows")
        lines = [f"  {name}: {query[name]}" for name in names]
        for side in SIDES:
            bad = {name: count for name, count in query[side]["bad_records"].items() if count}
            lines.append(
                f"  {side}: {query[side]['input_records']} read, bad {bad or 'none'}, "
                f"newest event time {query[side]['event_time_max']}"
            )
        if failure := query["last_failure"]:
            lines.append(f"  last failure: {failure['message']}")
        return "\n".join(["the query:", *lines])


def _read(side: Mapping[str, Any], topic: str) -> int:
    """Next offset to read of the only partition of `topic`, to which the tests write. If the side
    has several topics, the service names the topic of each partition."""
    partitions = side["partitions"]
    partition = partitions.get("0") or partitions.get(f"{topic}/0") or {}
    return partition.get("read") or 0


def _moment(written: object) -> datetime:
    """Parse the time of a row: ISO-8601 (UTC without an offset) or epoch milliseconds."""
    if isinstance(written, int | float) and not isinstance(written, bool):
        return datetime.fromtimestamp(written / 1000, UTC)
    if isinstance(written, str):
        written = datetime.fromisoformat(written)
    if not isinstance(written, datetime):
        raise TypeError(f"{written!r} is not a time")
    return written if written.tzinfo else written.replace(tzinfo=UTC)
