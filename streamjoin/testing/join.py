"""A join at work, and the steps of a test: rows go in, event time moves on, rows come out."""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, Self

import httpx
from testcontainers.core.network import Network

from job.join_spec.expressions import SIDES, Side
from streamjoin.testing.containers import Containers
from streamjoin.testing.differences import differences
from streamjoin.testing.images import Images
from streamjoin.testing.spec import SpecAtTest
from streamjoin.testing.topics import Output, Place, Record, Row, Topics, utc_text
from streamjoin.testing.waiting import wait_until

# A batch takes a second or less; the first one, or that of a busy machine, many.
EXPECT_SECONDS = 120.0

Fields = Mapping[str, Any]
Sendable = Fields | str | bytes | None | Record
"""Text and bytes go as they are, None is a tombstone."""


class RunningJoin:
    """`with broker.start("join.yaml") as join:` starts it, waits until it is ready, and ends it."""

    def __init__(
        self, spec: SpecAtTest, images: Images, network: Network, topics: Topics, servers: str
    ) -> None:
        self._spec = spec
        self._topics = topics
        self._servers = servers
        self._containers = Containers(spec, images, network)
        self._open = ExitStack()
        # Where the rows stand that only moved event time.
        self._clock: set[Place] = set()

    def __enter__(self) -> Self:
        # Chained joins share topics: what is there is another's.
        missing = set(self._spec.topics) - self._topics.names()
        with ExitStack() as opened:
            opened.callback(self._topics.remove, missing | {self._spec.plan.output.commit_topic})
            self._topics.make(sorted(missing))
            self._output = Output(self._servers, self._spec.plan.output.topic)
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

    # What goes in

    def left(self, *rows: Sendable) -> None:
        """Rows of the left topic, in this order."""
        self._send("left", rows)

    def right(self, *rows: Sendable) -> None:
        self._send("right", rows)

    def advance_watermark(
        self,
        to: datetime | str,
        *,
        left: Fields | None = None,
        right: Fields | None = None,
        timeout: float = EXPECT_SECONDS,
    ) -> None:
        """Until the watermark is `to` or later: what is older is decided, and unmatched rows whose
        time is over are out.

        Nothing but rows moves event time: one is sent on each side that is not there yet, with an
        event time and nulls, so that it matches nothing. `expect` leaves out what comes of it.
        Where a side's schema or key wants more than nulls, `left` and `right` give it.
        """
        target = _moment(to)
        self._wait_until_decided(timeout)
        query = self.query()
        given = {"left": left, "right": right}
        for side in SIDES:
            plan = self._spec.plan.side(side)
            newest = query[side]["watermark"]
            if newest is None or _moment(newest) < target:
                row = {
                    **(given[side] or {}),
                    plan.event_time: utc_text(target + plan.watermark_delay),
                }
                self._clock.update(self._send(side, [row]))
        self._wait_until_decided(timeout)
        reached = self.query()["watermark"]
        if reached is None or _moment(reached) < target:
            raise AssertionError(
                f"the watermark should be {utc_text(target)} and is {reached}: a row of nulls with "
                f"that event time does not move it. Give advance_watermark(left=…, right=…) the "
                f"fields that make a readable row.\n{self._told()}"
            )

    # What comes out

    def expect(self, *rows: Fields, timeout: float = EXPECT_SECONDS) -> None:
        """These rows have come since the last call, in any order, and no others.

        Rows are compared by the fields that are named. It waits until all that stands in both
        topics is decided, and with `idle_after`, which works by the clock, until the rows are
        there; AssertionError shows what is missing and what is too much.
        """
        come: list[Row] = []

        def wrong() -> str:
            found = differences(rows, [row.value for row in come])
            return f"the rows that came are not those expected:\n{found}\n{self._told()}"

        def all_there() -> bool:
            come.extend(row for row in self._output.new_rows() if not row.places & self._clock)
            return not differences(rows, [row.value for row in come]).missing

        self._wait_until_decided(timeout)
        wait_until(all_there, timeout if self._spec.follows_clock else 0, wrong)
        if differences(rows, [row.value for row in come]):
            raise AssertionError(wrong())

    def query(self) -> dict[str, Any]:
        """What `GET /v1/query` says: state, watermark, late and bad rows, failures."""
        return wait_until(lambda: self._containers.answer("/v1/query"), EXPECT_SECONDS, self._told)

    @property
    def http(self) -> httpx.Client:
        """The service, for all else; it may command."""
        return self._containers.http

    # What happens to it

    def crash(self) -> None:
        """SIGKILL to the job, and a new start on the same checkpoint."""
        self._containers.crash_job()

    # Inside

    def _send(self, side: Side, rows: Sequence[Sendable]) -> list[Place]:
        records = [row if isinstance(row, Record) else Record(row) for row in rows]
        timed = [(record, record.timestamp or self._event_time(side, record)) for record in records]
        return self._topics.send(self._spec.topic(side), timed)

    def _event_time(self, side: Side, record: Record) -> datetime:
        """An event time may not be ahead of Kafka's own: a test's is whenever the test says."""
        fields = record.value if isinstance(record.value, Mapping) else {}
        try:
            return _moment(fields.get(self._spec.plan.side(side).event_time))
        except (TypeError, ValueError, OverflowError):
            return datetime.now(UTC)

    def _wait_until_decided(self, timeout: float) -> None:
        """All that stands in the topics is read, whoever has sent it, and a batch has run with the
        watermark that came of it."""
        ends = {side: self._topics.end(self._spec.topic(side)) for side in SIDES}
        wait_until(
            lambda: self._is_decided(ends), timeout, lambda: f"not all is read.\n{self._told()}"
        )

    def _is_decided(self, ends: Mapping[Side, int]) -> bool:
        offsets = self._containers.answer("/v1/query/offsets")
        if not offsets or any(_read(offsets[side]) < ends[side] for side in SIDES):
            self._must_not_have_failed()
            return False
        return self._watermark_is_at_work(self.query())

    def _watermark_is_at_work(self, query: dict[str, Any]) -> bool:
        sides = [query[side]["watermark"] for side in SIDES]
        if None in sides or not self._spec.waits_for_watermark:
            return True
        due, at_work = min(map(_moment, sides)), query["watermark"]
        return at_work is not None and _moment(at_work) >= due

    def _must_not_have_failed(self) -> None:
        query = self._containers.answer("/v1/query")
        if query.get("state") == "FAILED":
            raise AssertionError(f"the query has failed: {query['last_failure']['message']}")

    def _told(self) -> str:
        """What helps to understand why a row has not come."""
        query = self._containers.answer("/v1/query")
        if not query:
            return f"the service does not answer; the job says:\n{self._containers.logs()}"
        names = ("state", "watermark", "watermark_held_back_by", "late_records")
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


def _read(side: Mapping[str, Any]) -> int:
    """The next offset to be read of the one partition."""
    return side["partitions"].get("0", {}).get("read") or 0


def _moment(written: object) -> datetime:
    """A time as rows hold it: ISO-8601, UTC where it says no offset, or epoch milliseconds."""
    if isinstance(written, int | float) and not isinstance(written, bool):
        return datetime.fromtimestamp(written / 1000, UTC)
    if isinstance(written, str):
        written = datetime.fromisoformat(written)
    if not isinstance(written, datetime):
        raise TypeError(f"{written!r} is no time")
    return written if written.tzinfo else written.replace(tzinfo=UTC)
