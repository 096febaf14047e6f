"""Key and partition of a result: formats of the key, and the partitioner of Kafka's clients."""

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from job.dataflow.results import output_records
from job.plan.plan import JoinPlan
from job.spark.try_eval import register_try_eval
from tests.semantics.spark_runner import conf
from tests.semantics.test_encoded_results import SCHEMA_ID, read
from tests.semantics.test_partitions_of_kafka import PARTITIONER, RECORDED
from tests.unit.specs import plan

REGISTRY = {"schema_registry": {"url": "http://localhost:8081"}}
PARTITIONS = 7
_FIRST_ID = 10  # ids of two digits are in the order of their texts


@pytest.fixture(params=["NO_CODEGEN", "CODEGEN_ONLY"])
def session(spark: SparkSession, request: pytest.FixtureRequest) -> Iterator[SparkSession]:
    with conf(spark, {"spark.sql.codegen.factoryMode": request.param}):
        yield spark


def records(spark: SparkSession, made: JoinPlan, campaigns: list[str | None]) -> list[Any]:
    """The results of pairs whose left rows have these campaigns, in their order."""
    rows = spark.createDataFrame(
        list(enumerate(campaigns, _FIRST_ID)), "id BIGINT, left_campaign STRING"
    )
    register_try_eval(spark)
    pairs = rows.repartition(1).selectExpr(
        f"if(left_campaign IS NULL, NULL, id - {_FIRST_ID}) AS left_ad_id",
        "left_campaign",
        "id * 2D AS left_cost",
        "id AS position_left",
        "id + 7 AS position_right",
        "'ann' AS right_user",
    )
    written: DataFrame = output_records(pairs, with_ids(made))
    return sorted(written.collect(), key=lambda row: bytes(row.headers[0].value))


def with_ids(made: JoinPlan) -> JoinPlan:
    schema = made.output.key_schema
    known = None if schema is None else replace(schema, id=SCHEMA_ID)
    return replace(made, output=replace(made.output, key_schema=known, partitions=PARTITIONS))


def keys(spark: SparkSession, key: str, key_format: str) -> list[Any]:
    """The keys of a result with campaign `x "y"` and ad_id 0, and of one with nulls."""
    changes = {} if key_format in {"string", "json"} else REGISTRY
    made = plan(**changes, output__key=key, output__key_format=key_format)
    schema = with_ids(made).output.key_schema
    written = [row.key for row in records(spark, made, ['x "y"', None])]
    if schema is None:
        return written
    return [None if key is None else read(bytes(key), schema) for key in written]


@pytest.mark.parametrize(
    ("key", "key_format", "expected"),
    [
        ("left.campaign", "string", ['x "y"', None]),
        ("left.campaign", "json", ['"x \\"y\\""', None]),
        ("ad_id", "json", ["0", None]),
        ("named_struct('id', ad_id)", "json", ['{"id":0}', '{"id":null}']),
        ("left.campaign", "avro", ['x "y"', None]),
        ("ad_id", "avro", [0, None]),
        ("named_struct('id', ad_id)", "avro", [{"id": 0}, {"id": None}]),
        ("ad_id", "protobuf", [{"key": 0}, None]),
        ("named_struct('id', ad_id)", "protobuf", [{"id": 0}, {"id": None}]),
    ],
)
def test_key_has_its_format(
    session: SparkSession, key: str, key_format: str, expected: list[Any]
) -> None:
    assert expected == keys(session, key, key_format)


def test_key_that_can_fail_has_its_format(session: SparkSession) -> None:
    key = "cast(left.campaign AS INT)"
    made = plan(**REGISTRY, output__key=key, output__key_format="avro")
    schema = with_ids(made).output.key_schema
    assert schema is not None

    good, bad, null = records(session, made, ["12", "x", None])

    assert 12 == read(bytes(good.key), schema)
    assert (None, None, "output.key") == (bad.key, bad.value, bad.failed_field)
    assert (None, None) == (null.key, null.failed_field)
    assert null.value is not None


def test_partition_is_that_of_the_java_client_for_the_text_of_another_value(
    session: SparkSession,
) -> None:
    recorded = json.loads(RECORDED.read_text())[str(PARTITIONS)]
    made = plan(output__key="ad_id", output__partition_by="left.campaign")

    written = records(session, made, [*recorded, None])

    assert [*recorded.values(), None] == [row.partition for row in written]


def test_partition_value_that_can_fail_is_a_failing_result(session: SparkSession) -> None:
    made = plan(output__partition_by="cast(left.campaign AS INT) + 1")

    good, bad = records(session, made, ["6", "x"])

    expected = getattr(session._jvm, PARTITIONER).partitionForKey(b"7", PARTITIONS)
    assert (expected, None) == (good.partition, good.failed_field)
    assert (None, None, "output.partition_by") == (bad.partition, bad.value, bad.failed_field)


def test_records_have_no_partition_without_partition_by(session: SparkSession) -> None:
    [record] = records(session, plan(output__key="ad_id"), ["a"])

    assert ["key", "value", "headers"] == record.__fields__
