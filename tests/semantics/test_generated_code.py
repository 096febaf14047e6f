"""Java compiles the code that Spark generates for a side.

A method has at most 64 KB. If one is larger, Spark tries to compile it again in each batch.
"""

from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql import SparkSession

from job.dataflow.sides import side_rows
from job.formats.pinning import reader_schemas
from job.formats.registry import RegistryAccess
from job.plan.planner import join_plan
from job.spec.spec import spec_from_yaml
from tests.registry_stub import RegistryStub
from tests.semantics.test_dead_letters import RECORDS
from tests.sql_worker import SQL
from tests.unit.formats.written import field, record
from tests.unit.specs import spec_yaml

TYPES = {"TIMESTAMP": 20, "DECIMAL(10, 2)": 10, "DOUBLE": 5, "DATE": 2, "STRING": 5}
"""Types of columns, and how many columns a side has of each."""
NUMBERED = {f"c{kind}{n}": name for kind, name in enumerate(TYPES) for n in range(TYPES[name])}
DECLARED = ", ".join(f"{name} {kind}" for name, kind in NUMBERED.items())
AVRO = record(
    field("ad_id", "long"),
    field("shown_at", {"type": "long", "logicalType": "timestamp-millis"}),
    *(field(f"c{n}", {"type": "long", "logicalType": "timestamp-micros"}) for n in range(30)),
)
SPEC: dict[str, Any] = {
    "on_bad_record": None,
    "dead_letter": {"topic": "dead"},
    "on_null_key": "dead_letter",
    "on_late_row": "dead_letter",
    "left__schema": f"ad_id BIGINT, shown_at TIMESTAMP, {DECLARED}",
    "right__format": "avro",
    "right__schema": None,
    "left__filter": "ad_id + 1 > 0",
    "output__columns": {"ad_id": "left.ad_id", **{name: f"left.{name}" for name in NUMBERED}},
}
NESTED = ", ".join(f"c{n}: TIMESTAMP" for n in range(10))
CLICK = record(
    field("ad_id", "long"),
    field("clicked_at", {"type": "long", "logicalType": "timestamp-millis"}),
    field("user", "string"),
)
AVRO_SPEC = {
    "left__format": "avro",
    "left__schema": None,
    "output__columns": {"ad_id": "left.ad_id", **{f"c{n}": f"left.c{n}" for n in range(30)}},
}
COMPUTED = {
    "left__columns": {"at": "timestamp_seconds(ad_id)", "half": "c10 / 2"},
    "left__event_time": "at",
}


@pytest.fixture
def compiled(spark: SparkSession) -> Iterator[None]:
    changed = {
        "spark.sql.codegen.wholeStage": "true",
        "spark.sql.codegen.factoryMode": "CODEGEN_ONLY",
        "spark.sql.codegen.maxFields": "1000",
    }
    before = {name: spark.conf.get(name, None) for name in changed}
    for name, value in changed.items():
        spark.conf.set(name, value)
    yield
    for name, old in before.items():
        spark.conf.unset(name) if old is None else spark.conf.set(name, old)


@pytest.mark.usefixtures("compiled")
@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"letter_bytes_max": None}, id="no letters"),
        pytest.param({}, id="json"),
        pytest.param({"left__time_zone": "Europe/Berlin"}, id="time_zone"),
        pytest.param({"left__format": "csv"}, id="csv"),
        pytest.param({"left__envelope": "debezium"}, id="envelope"),
        pytest.param(
            {
                "left__schema": f"{SPEC['left__schema']}, nested STRUCT<{NESTED}>",
                "left__event_time": "nested.c0",
            },
            id="nested",
        ),
        pytest.param(COMPUTED, id="computed"),
        pytest.param(AVRO_SPEC, id="avro"),
        pytest.param(AVRO_SPEC | {"left__event_time": "c1 + INTERVAL 1 HOUR"}, id="expression"),
    ],
)
def test_code_of_a_side_with_many_columns_compiles(
    spark: SparkSession, changes: dict[str, Any]
) -> None:
    changes = {"letter_bytes_max": 1_000_000, **changes}
    letter_bytes_max = changes.pop("letter_bytes_max")
    with RegistryStub() as stub:
        stub.register("impressions-value", AVRO)
        stub.register("clicks-value", CLICK)
        text = spec_yaml(**{**SPEC, **changes}, schema_registry={"url": stub.url})
        spec = spec_from_yaml(text, {})
        plan = join_plan(spec, SQL, state_partitions=1, readers=reader_schemas(spec, SQL))
        records = spark.createDataFrame(spark.sparkContext.parallelize([]), RECORDS)
        access = RegistryAccess(stub.url)

        rows = side_rows(records, plan.left, plan, access, letter_bytes_max=letter_bytes_max)

        stages = rows._jdf.queryExecution().debug().codegenToSeq()
        sizes = [stages.apply(n)._3().maxMethodCodeSize() for n in range(stages.size())]
    assert sizes
    assert min(sizes) > 0, sizes
