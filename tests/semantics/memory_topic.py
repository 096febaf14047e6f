"""A topic in the memory of Spark, and settings of its session. Independent of the product, so that
tests of Spark alone can use them."""

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

from pyspark.sql import DataFrame, SparkSession

_MEMORY_STREAM = "org.apache.spark.sql.execution.streaming.runtime.MemoryStream"
_FIELD, _NULL = "\x01", "\x02"

_OF_RECORD = [
    f"cast(nullif(split_part(value, '{_FIELD}', 4), '{_NULL}') AS BINARY) AS key",
    f"cast(nullif(split_part(value, '{_FIELD}', 5), '{_NULL}') AS BINARY) AS value",
    f"cast(split_part(value, '{_FIELD}', 1) AS INT) AS partition",
    f"cast(split_part(value, '{_FIELD}', 2) AS BIGINT) AS offset",
    f"timestamp_micros(try_cast(split_part(value, '{_FIELD}', 3) AS BIGINT)) AS timestamp",
]


class Record(Protocol):
    """Read-only, as those of job/semantics/ are."""

    @property
    def partition(self) -> int: ...
    @property
    def offset(self) -> int: ...
    @property
    def timestamp_us(self) -> int | None: ...
    @property
    def key(self) -> str | None: ...
    @property
    def value(self) -> str | bytes | None: ...


class PlainRecord(NamedTuple):
    timestamp_us: int
    key: str | None = None
    partition: int = 0
    offset: int = 0
    value: str = "{}"


class MemoryTopic:
    """A stream of records with the columns of Spark's Kafka source."""

    def __init__(self, spark: SparkSession) -> None:
        strings = _class(spark, "org.apache.spark.sql.Encoders").STRING()
        self._stream = _class(spark, _MEMORY_STREAM).apply(strings, spark._jsparkSession)
        self._to_seq = _class(spark, "org.apache.spark.api.python.PythonUtils").toSeq
        self._spark = spark

    def records(self) -> DataFrame:
        return DataFrame(self._stream.toDF(), self._spark).selectExpr(*_OF_RECORD)

    def add_timestamp(self, micros: int) -> None:
        """A record with only a timestamp."""
        self.add([PlainRecord(micros, partition=7)])

    def add(self, records: Sequence[Record]) -> None:
        texts = [_as_text(record) for record in records]
        self._stream.addData(self._to_seq(texts))


def _class(spark: SparkSession, name: str) -> Any:
    """A Java class by its full name: py4j would search all jars for each part of it."""
    return getattr(spark._jvm, name)


def _as_text(record: Record) -> str:
    fields = (record.partition, record.offset, record.timestamp_us, record.key, record.value)
    return _FIELD.join(_NULL if field is None else str(field) for field in fields)


class conf:  # noqa: N801 - reads as a function in a with statement
    """Session settings for a block."""

    def __init__(self, spark: SparkSession, settings: dict[str, str]) -> None:
        self._conf = spark.conf
        self._settings = settings
        self._before: dict[str, str | None] = {}

    def __enter__(self) -> None:
        for name, value in self._settings.items():
            self._before[name] = self._conf.get(name, None)
            self._conf.set(name, value)

    def __exit__(self, *_: object) -> None:
        for name, value in self._before.items():
            if value is None:
                self._conf.unset(name)
            else:
                self._conf.set(name, value)
