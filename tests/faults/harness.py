"""The harness of the fault tests: one full outer join on a broker that may be broken, its load, and
the oracle that checks it."""

import random
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import psutil
from confluent_kafka import (
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, OffsetSpec

from deploy.local.kafka import EmbeddedKafka
from job.protocol.reports import StateCount
from job.protocol.status import JobStatus
from job.spec.engine import Engine
from job.spec.join_conditions import JoinOperator
from tests.faults.commit_topic import marker_problems, missing_markers, part_problems
from tests.faults.faulty_job import FaultyJob
from tests.faults.join_spec import INTERVAL_SECONDS, join_spec
from tests.faults.oracle import (
    DELAY_MS,
    CheckResult,
    Record,
    check_results,
    offset_log_problems,
)
from tests.faults.output_reader import OutputReader
from tests.faults.proxy import Proxy
from tests.integration.jobs import START_SECONDS, STATE_PARTITIONS
from tests.integration.jvms import SharedJvm
from tests.integration.topics import READ_SECONDS, Sent
from tests.polling import wait_until

SIDES = ("left", "right")
T0 = 1_700_000_000_000
# The watermark records of `settle` are this much later than the rows before them, which then have
# all expired.
WATERMARK_RECORD_MS = 3 * 3_600_000
ROUND_MS = 4 * 3_600_000
# Event times of a round are in the half hour after its beginning.
ROWS_MS = 1_800_000
_LEADERLESS = {
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.FENCED_LEADER_EPOCH,
    KafkaError.UNKNOWN_LEADER_EPOCH,
    # A new leader waits for its followers.
    KafkaError.OFFSET_NOT_AVAILABLE,
    # No partition has a leader: the broker registers again after a pause.
    KafkaError._NOENT,
}

# Each is unreadable for another reason.
POISON: Mapping[str, Any] = {
    "tombstone": None,
    "malformed_json": b"\xff{not json",
    "schema_mismatch": {"k": "poison", "t": T0, "n": {"a": 1}},
    "missing_event_time": {"k": "poison", "n": 1},
    "unparsable_event_time": {"k": "poison", "t": "yesterday", "n": 1},
    "absurd_event_time": {"k": "poison", "t": -5, "n": 1},
    "future_event_time": {"k": "poison", "t": T0 + 10 * 365 * 86_400_000, "n": 1},
}


class Harness:
    """Topics, spec and load of one join; `job` runs it, and may be replaced."""

    send_order: Sequence[str] = SIDES
    """The sides, in the order in which records are sent to them."""
    growing: Sequence[str] = (*SIDES, "out")
    """The topics that may get more partitions."""
    advances_alone = True
    """Whether a batch without records follows if the watermark has advanced."""

    def __init__(
        self,
        kafka: EmbeddedKafka,
        name: str,
        folder: Path,
        *,
        engine: Engine = Engine.MICRO_BATCH,
        operator: JoinOperator = JoinOperator.SPARK,
        proxy: Proxy | None = None,
        checkpoint: Path | None = None,
        environment: Mapping[str, str] | None = None,
        jvm: SharedJvm | None = None,
        seed: int = 1,
        interval_seconds: int = INTERVAL_SECONDS,
    ) -> None:
        self.kafka = kafka
        self.name = name
        self.folder = folder
        self.engine = engine
        self._operator = operator
        self.checkpoint = checkpoint or folder / "checkpoint"
        self.random = random.Random(seed)
        self.poison: Counter[str] = Counter()
        self._servers = f"127.0.0.1:{proxy.port}" if proxy else kafka.bootstrap_servers
        self._interval_seconds = interval_seconds
        self._environment = environment
        self._jvm = jvm
        self._client = {"bootstrap.servers": kafka.bootstrap_servers, "log_level": 0}
        self._sent: Counter[str] = Counter()
        self._numbers = 0
        self._round = 0
        kafka.create_topics([f"{name}.{part}" for part in (*SIDES, "out")], partitions=2)
        self.job = self.new_job(folder)

    def new_job(self, folder: Path, environment: Mapping[str, str] | None = None) -> FaultyJob:
        """Another job on the same spec, in another folder. `environment`: None: that of the
        harness."""
        folder.mkdir(parents=True, exist_ok=True)
        more = self._environment if environment is None else environment
        return FaultyJob(self._spec(), folder, more, self._jvm)

    def _spec(self) -> str:
        names = (self.name, self._servers, self.checkpoint)
        return join_spec(*names, self.engine, self._interval_seconds, self._operator)

    def topic(self, part: str) -> str:
        return f"{self.name}.{part}"

    # Load

    def feed(self, count: int, *, abort: bool = False) -> None:
        """About `count` records a side: pairs, rows without a match, repeated rows, out of order,
        with null keys; `abort`: in a transaction that is aborted."""
        rows: dict[str, list[Sent]] = {side: [] for side in SIDES}
        for _ in range(count):
            k = f"k{self._number() % max(10, count // 3)}"
            t = self._base + self.random.randrange(ROWS_MS)
            for side in SIDES:
                chance = self.random.random()
                if chance < 0.1:
                    continue
                late_by = self.random.randrange(400_000) if side == "right" else 0
                record = self._record(None if chance < 0.12 else k, t + late_by)
                rows[side] += [record] * (2 if chance > 0.95 else 1)
        for side in SIDES:
            self.random.shuffle(rows[side])
            self.send(side, rows[side], abort=abort)

    def feed_poison(self) -> None:
        for side in SIDES:
            self.send(side, [Sent(value) for value in POISON.values()])
        self.poison.update(dict.fromkeys(POISON, 2))

    def feed_late(self, count: int) -> None:
        """Rows behind the watermark of the last watermark record; call after `settle`."""
        for side in SIDES:
            late = [
                Sent({"k": f"late{n}", "t": T0 + n, "n": self._number(), "late": True}, key=str(n))
                for n in range(count)
            ]
            self.send(side, late)

    def pair(self, k: str) -> None:
        """A left and a right row that match."""
        for side in self.send_order:
            self.send_row(side, k)

    def send_row(self, side: str, k: str) -> None:
        self.send(side, [self._record(k, self._base + ROWS_MS)])

    def pairs(self, count: int) -> None:
        """As many left rows as right rows: each matches one of the other side."""
        keys = [f"pair{self._number()}" for _ in range(count)]
        for side in SIDES:
            self.send(side, [self._record(k, self._base + ROWS_MS) for k in keys])

    def send(self, side: str, records: Sequence[Sent], *, abort: bool = False) -> None:
        """Wait until the broker has stored all of them, also while it is down for some time."""
        settings: dict[str, Any] = {**self._client, "enable.idempotence": True}
        if abort:
            settings["transactional.id"] = f"upstream-{self.topic(side)}"
        producer = Producer(settings)
        if abort:
            producer.init_transactions(START_SECONDS)
            producer.begin_transaction()
        failed: list[Any] = []
        for record in records:
            while True:
                try:
                    producer.produce(
                        self.topic(side),
                        record.payload,
                        key=record.key,
                        headers=dict(record.headers or {}),
                        on_delivery=lambda error, _: failed.append(error) if error else None,
                    )
                    break
                except BufferError:
                    producer.poll(0.1)
        assert 0 == producer.flush(START_SECONDS)
        assert [] == failed
        if abort:
            producer.abort_transaction(START_SECONDS)
        else:
            self._sent[side] += len(records)

    def _record(self, k: str | None, t: int) -> Sent:
        return Sent({"k": k, "t": t, "n": self._number()}, key=k)

    def _number(self) -> int:
        self._numbers += 1
        return self._numbers

    @property
    def _base(self) -> int:
        return T0 + self._round * ROUND_MS

    def broker_process(self) -> psutil.Process:
        return psutil.Process(self.kafka.pid)

    # Results

    def recovered(self, since: float, timeout: float = START_SECONDS) -> float:
        """Seconds from `since` (time.monotonic) until a committed result of a pair sent now."""
        reader = OutputReader(self._consumer, self.topic("out"), self.ends(self.topic("out")))
        k = f"probe{self._number()}"
        self.pair(k)
        wanted = k.encode()

        def is_emitted() -> bool:
            status = self.job.status()
            assert status is None or status.state != "FAILED", status.last_failure
            return wanted in reader.arrived()

        with closing(reader):
            wait_until(is_emitted, timeout, f"{k} is emitted")
        return time.monotonic() - since

    def settle(self) -> JobStatus:
        """Send a watermark record to each side, and wait until all results that it decides are
        emitted."""
        for side in self.send_order:
            k = f"watermark-{self._round}-{side}"
            self.send(side, [self._record(k, self._base + WATERMARK_RECORD_MS)])
        watermark = self._base + WATERMARK_RECORD_MS - DELAY_MS
        self._round += 1

        def settled() -> JobStatus | None:
            status = self.job.status()
            assert status is None or status.state != "FAILED", status.last_failure
            last = status.last_batch if status else None
            if last is None or (self.advances_alone and last.watermark_ms != watermark):
                return None
            read = (last.left.end_offsets, last.right.end_offsets)
            return status if read == tuple(self.ends(self.topic(side)) for side in SIDES) else None

        return wait_until(settled, START_SECONDS, f"all is read and the watermark is {watermark}")

    def check(self, status: JobStatus) -> CheckResult:
        """Check all results so far; `status` as returned by `settle`. Raises the problems."""
        read = {side: self.records(self.topic(side)) for side in SIDES}
        commits, output = (self.records(self.topic(part)) for part in ("commits", "out"))
        result = self._check_results(read["left"], read["right"], output)
        assert status.last_batch is not None
        ended = status.last_batch.batch_id
        problems = [
            *result.problems,
            *marker_problems(commits, STATE_PARTITIONS),
            *missing_markers(commits, STATE_PARTITIONS, ended),
            *part_problems(commits, output),
            *self._other_problems(status, self._rows_in_state(read["left"], read["right"])),
        ]
        if len(read["left"]) != self._sent["left"] or len(read["right"]) != self._sent["right"]:
            problems.append(f"sent {self._sent}, in Kafka {[len(rows) for rows in read.values()]}")
        assert [] == problems, "\n".join(problems)
        return result

    def _check_results(
        self, left: Sequence[Record], right: Sequence[Record], output: Sequence[Record]
    ) -> CheckResult:
        return check_results(left, right, output)

    def _rows_in_state(
        self,
        left: Sequence[Record],  # noqa: ARG002  # of a table
        right: Sequence[Record],  # noqa: ARG002
    ) -> int:
        """Number of rows that the last watermark records leave: they themselves. `left`, `right`:
        all records of the side."""
        return len(SIDES)

    def _other_problems(self, status: JobStatus, rows_in_state: int) -> Iterator[str]:
        log = self.checkpoint / "query" / "offsets"
        entries = {int(p.name): p.read_text() for p in log.iterdir() if p.name.isdecimal()}
        yield from offset_log_problems(entries)
        assert status.last_batch is not None
        if status.state != "RUNNING":
            yield f"the job is {status.state}"
        # None: not counted since the last start.
        for rows in (status.last_batch.state_rows or rows_in_state, self._counted_rows()):
            if rows != rows_in_state:
                yield f"{rows} rows in state where the last watermark records leave {rows_in_state}"
        behind = status.last_batch.left.offsets_behind_latest
        if behind and sum(behind.values()):
            yield f"it reports a lag of {behind}, but all records are read"

    def _counted_rows(self) -> int:
        answer = wait_until(
            lambda: self.job.ask("state_count").get("result"), START_SECONDS, "state is counted"
        )
        return StateCount.model_validate(answer).rows

    def records(self, topic: str) -> list[Record]:
        """All committed records."""
        consumer = self._consumer()
        ends = self.ends(topic)
        assignment = [TopicPartition(topic, partition, 0) for partition in ends]
        consumer.assign(assignment)
        records = []
        left = {partition for partition, end in ends.items() if end > 0}
        deadline = time.monotonic() + 2 * READ_SECONDS
        try:
            while left:
                assert time.monotonic() < deadline, f"no end of {topic}"
                message = consumer.poll(READ_SECONDS)
                assert message is not None, f"no end of {topic}"
                if message.error():
                    left.discard(message.partition())
                    continue
                records.append(
                    Record(
                        topic,
                        message.partition() or 0,
                        message.offset() or 0,
                        message.timestamp()[1],
                        message.key(),
                        message.value(),
                        dict(message.headers() or ()),
                    )
                )
        finally:
            consumer.close()
        return records

    def _consumer(self) -> Consumer:
        return Consumer(
            {
                **self._client,
                "group.id": "oracle",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "isolation.level": "read_committed",
                "reconnect.backoff.max.ms": 500,
            }
        )

    def ends(
        self, topic: str, level: IsolationLevel = IsolationLevel.READ_COMMITTED
    ) -> dict[int, int]:
        """The next offset to read of each partition."""
        return wait_until(
            lambda: self._ends(topic, level), READ_SECONDS, f"the ends of {topic} are known"
        )

    def _ends(self, topic: str, level: IsolationLevel) -> dict[int, int]:
        """Empty if a partition has no leader at the moment: the partition or its broker is new, or
        its leader moves."""
        partitions = self.admin.list_topics(topic, READ_SECONDS).topics[topic].partitions
        futures = self.admin.list_offsets(
            {TopicPartition(topic, partition): OffsetSpec.latest() for partition in partitions},
            isolation_level=level,
            request_timeout=READ_SECONDS,
        )
        try:
            return {
                place.partition: end.result(READ_SECONDS).offset for place, end in futures.items()
            }
        except KafkaException as error:
            if error.args[0].code() not in _LEADERLESS:
                raise
            return {}

    def hides_records(self, part: str = "commits") -> bool:
        """Whether an open transaction hides the last records of the topic from readers."""
        topic = self.topic(part)
        return self.ends(topic) != self.ends(topic, IsolationLevel.READ_UNCOMMITTED)

    @property
    def admin(self) -> AdminClient:
        if not hasattr(self, "_admin"):
            self._admin = AdminClient(self._client)
        return self._admin
