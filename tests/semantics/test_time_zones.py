"""Time zones of the sides and of tumbling windows, on Spark."""

import json
import re
from collections.abc import Iterable
from typing import Any

import pytest
from pyspark.sql import SparkSession

from job.semantics.operator import Processor
from job.spark.in_time_zone import register_in_time_zone
from tests.semantics import differential
from tests.semantics.join_cases import Case, Data, Idle, Restart
from tests.semantics.spark_runner import conf
from tests.sql_worker import WORKER

ZONE = "America/New_York"


def row(k: int, text: str) -> str:
    return json.dumps({"k": k, "t": text, "s": text})


def case() -> Case:
    """Days of Copenhagen, with the change of March 31, and local times of another zone."""
    side = {
        "schema": "k INT, t TIMESTAMP, s STRING",
        "key": ["hour(t)", "cast(try_to_timestamp(s, 'yyyy-MM-dd HH:mm:ss') as date)"],
        "event_time": "t",
        "watermark_delay": "10 seconds",
    }
    row_filter = {"filter": "t > timestamp'2024-03-31 00:00:00' and minute(t) < 59"}
    spec = {
        "name": "zones",
        "kafka": {"bootstrap_servers": "localhost:9092"},
        "left": {"topic": "l", **side, **row_filter, "time_zone": "+08:00"},
        "right": {"topic": "r", **side, "time_zone": "Asia/Shanghai"},
        "join": {
            "type": "full_outer",
            "window": {"size": "1 day", "time_zone": "Europe/Copenhagen"},
            "condition": "minute(left.t) = minute(right.t) or hour(right.t) = 23",
        },
        "output": {
            "topic": "o",
            "columns": {"l": "left.k", "r": "right.k", "h": "hour(left.t)"},
            "delivery": "at_least_once",
        },
        "checkpoint": "./checkpoint",
        "on_bad_record": "drop",
    }
    # The day ends at 06:00 of Shanghai.
    left = [row(1, "2024-03-31 07:10:00"), row(2, "2024-04-01 05:58:00")]
    right = [row(11, "2024-03-31 07:20:00"), row(12, "2024-04-01 05:58:00")]
    before_end = [row(3, "2024-04-01 06:00:09"), row(4, "2024-03-31 23:59:00+02:00")]
    after_end = [row(13, "2024-04-01 06:00:10"), row(14, "2024-04-01 06:00:00")]
    steps = (
        Data(left, right),
        *(Data(before_end, before_end), Restart()),
        *(Data(after_end, after_end), Idle(), Data(left, right)),
    )
    return Case(spec, steps)


@pytest.mark.parametrize("processor", [None, "interval"])
def test_job_and_specification_agree_on_time_zones(
    spark: SparkSession, processor: Processor | None
) -> None:
    batches = differential.check(spark, case(), processor=processor)

    values = [json.loads(value) for batch in batches for _, _, value in batch.output]
    assert {"l": 1, "r": 11, "h": 23} in values
    assert {"l": 2, "r": 12, "h": 21} in values
    assert {"l": None, "r": 4, "h": None} in values
    assert 0 < sum(batch.late_rows for batch in batches)


def test_expression_has_the_value_of_a_session_with_the_time_zone(spark: SparkSession) -> None:
    register_in_time_zone(spark, ZONE)
    examples = zoned_examples()

    with conf(spark, {"spark.sql.session.timeZone": ZONE}):
        wanted = values_of(spark, examples)
    assert dict(zip(examples, wanted, strict=True)) == dict(
        zip(examples, values_of(spark, examples.values()), strict=True)
    )
    assert len(examples) > 100
    in_utc = values_of(spark, examples)
    assert sum(a != b for a, b in zip(wanted, in_utc, strict=True)) > 30


def zoned_examples() -> dict[str, str]:
    """The job's SQL of examples of Spark's documentation that can depend on the time zone."""
    functions = WORKER.ask({"kind": "functions"})["functions"]
    texts = [
        text.replace("_FUNC_", function["name"])
        for function in functions
        if function["refused"] is None
        for text in re.findall(r"SELECT (.*?);", function["examples"], re.DOTALL)
    ]
    question = {"kind": "expression", "columns": [], "time_zone": ZONE}
    answers = {text: WORKER.ask({**question, "sql": text}) for text in texts}
    return {
        text: answer["sql"] for text, answer in answers.items() if answer.get("sql", text) != text
    }


def values_of(spark: SparkSession, texts: Iterable[str]) -> list[Any]:
    columns = [f"{text} AS x{index}" for index, text in enumerate(texts)]
    return list(spark.range(1).selectExpr(*columns).collect()[0])
