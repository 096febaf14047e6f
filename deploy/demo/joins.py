"""What the demo can join: two streams, or a stream and a table. The other modules of the demo
show, send and check either."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from deploy.demo import load, table
from deploy.demo.load import Delivered, Expected, OutputRow, Record, Side
from job.spec.engine import Engine

_FOLDER = Path(__file__).parent


@dataclass(frozen=True)
class Closing:
    """The end of a run, once the job has read all other records."""

    records: Sequence[Record]
    watermark_ms: int | None = None
    """Watermark at which all results are emitted. None: they do not wait for a watermark."""


@dataclass(frozen=True)
class DemoJoin:
    command: str
    """Command that runs it."""
    spec: Path
    question: str
    topics: Mapping[Side, str]
    table: Side | None
    """Side that is a table. None: both are streams."""
    output_topic: str
    records: Callable[[int], Iterator[tuple[int, Record]]]
    """The records from a time on, in milliseconds, each with its time of arrival."""
    closing: Callable[[int], Closing]
    """The end of a run whose newest record arrived at this time."""
    expected: Callable[[Sequence[Delivered], Sequence[OutputRow], Engine], Expected]
    """The results of the records; the output decides where several are right."""
    columns: Mapping[str, int]
    """Output columns that the screen shows, and their widths."""
    matched_column: str
    """Output column that is null if and only if the result is unmatched."""

    @property
    def topics_text(self) -> str:
        return f"{self.topics['left']} + {self.topics['right']} → {self.output_topic}"


def _closing_of_streams(newest_ms: int) -> Closing:
    impression, click = load.closing_pair(newest_ms)
    return Closing((impression, click), impression.event_time_ms - load.WATERMARK_DELAY_MS)


def _expected_of_streams(delivered: Iterable[Delivered], *_: object) -> Expected:
    return Expected(load.expected_rows(delivered))


def _expected_of_table(
    delivered: Sequence[Delivered], output: Sequence[OutputRow], engine: Engine
) -> Expected:
    # In real time both topics are read at the same time (docs/tables.md).
    return table.expected(delivered, output, is_ordered=engine is Engine.MICRO_BATCH)


STREAMS = DemoJoin(
    command="make run",
    spec=_FOLDER / "streams.yaml",
    question="which impressions were clicked within 10 s?",
    topics=load.TOPICS,
    table=None,
    output_topic=load.OUTPUT_TOPIC,
    records=load.demo_records,
    closing=_closing_of_streams,
    expected=_expected_of_streams,
    columns={"ad_id": 8, "campaign": 10, "user": 10, "shown_at": 12, "clicked_at": 14},
    matched_column="clicked_at",
)
TABLE = DemoJoin(
    command="make run DEMO=table",
    spec=_FOLDER / "table.yaml",
    question="which customer has placed each order?",
    topics=table.TOPICS,
    table="right",
    output_topic=table.OUTPUT_TOPIC,
    records=table.demo_records,
    closing=lambda _: Closing(table.closing_orders()),
    expected=_expected_of_table,
    columns={"order_id": 8, "customer_id": 11, "amount": 8, "name": 10, "tier": 10, "points": 8},
    matched_column="points",
)
JOINS = {"streams": STREAMS, "table": TABLE}
