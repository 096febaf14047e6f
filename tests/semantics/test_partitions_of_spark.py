"""State partitions, compared with hash and pmod of Spark."""

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from job.evaluation.partitioning import murmur3, state_partition
from job.evaluation.sql_cast import EPOCH

TYPES = {
    "a": "TINYINT", "b": "INT", "c": "BIGINT", "d": "STRING", "e": "DOUBLE", "f": "FLOAT",
    "g": "BOOLEAN", "h": "DECIMAL(10,2)", "i": "DECIMAL(30,5)", "j": "DATE", "k": "TIMESTAMP",
    "l": "BINARY",
}  # fmt: skip

_VALUES = {
    "a": st.integers(-128, 127),
    "b": st.integers(-(2**31), 2**31 - 1),
    "c": st.integers(-(2**63), 2**63 - 1),
    "d": st.text(max_size=9),
    "e": st.floats(allow_nan=False) | st.just(-0.0),
    "f": st.floats(width=32, allow_nan=False),
    "g": st.booleans(),
    "h": st.integers(-(10**10) + 1, 10**10 - 1).map(lambda n: Decimal(n).scaleb(-2)),
    "i": st.integers(-(10**28), 10**28).map(lambda n: Decimal(f"{n}e-5")),
    "j": st.dates(date(1, 1, 1)),
    "k": st.datetimes(datetime(1900, 1, 1)).map(lambda at: at.replace(tzinfo=UTC)),
    "l": st.binary(max_size=9),
}
ROWS = st.lists(st.tuples(*(st.none() | _VALUES[name] for name in TYPES)), min_size=20, max_size=20)


def inner(value):
    if isinstance(value, datetime):
        return (value - EPOCH) // timedelta(microseconds=1)
    if isinstance(value, date):
        return (value - EPOCH.date()).days
    return value


@settings(max_examples=10, suppress_health_check=list(HealthCheck))
@given(ROWS)
def test_hashes_and_partitions_are_sparks(spark: SparkSession, rows):
    ddl = ", ".join(f"{name} {kind}" for name, kind in TYPES.items())
    frame = spark.createDataFrame(rows, ddl)
    alone = [F.hash(name).alias(name) for name in TYPES]
    together = F.hash(*TYPES).alias("all")
    partition = F.expr("pmod(hash(b, d), 7)").alias("partition")
    seen = frame.select(*alone, together, partition).collect()

    for row, hashes in zip(rows, seen, strict=True):
        values = dict(zip(TYPES, map(inner, row), strict=True))
        for name, kind in TYPES.items():
            assert (kind, row, murmur3([values[name]], [kind])) == (kind, row, hashes[name])
        assert murmur3(list(values.values()), list(TYPES.values())) == hashes["all"]
        expected = state_partition([values["b"], values["d"]], ["INT", "STRING"], 7)
        assert expected == hashes["partition"]
