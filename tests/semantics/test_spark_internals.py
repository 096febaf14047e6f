"""Every class and member of Spark that job/spark uses without a public API, found by reflection.

A new version of Spark that lost one fails here in seconds, with the name of the hook.
"""

import importlib
import re
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

import job.spark
from job.plan.tuning import CONF

_PACKAGES = [
    "org.apache.spark",
    "org.apache.spark.deploy",
    "org.apache.spark.scheduler",
    "org.apache.spark.sql.catalyst.analysis",
    "org.apache.spark.sql.catalyst.expressions",
    "org.apache.spark.sql.catalyst.expressions.objects",
    "org.apache.spark.sql.classic",
    "org.apache.spark.sql.execution",
    "org.apache.spark.sql.execution.datasources.v2",
    "org.apache.spark.sql.execution.streaming",
    "org.apache.spark.sql.execution.streaming.operators.stateful.join",
    "org.apache.spark.sql.execution.streaming.operators.stateful.transformwithstate",
    "org.apache.spark.sql.execution.streaming.runtime",
    "org.apache.spark.sql.execution.streaming.state",
    "org.apache.spark.sql.execution.ui",
    "org.apache.spark.sql.internal",
    "org.apache.spark.sql.kafka010",
    "org.apache.spark.sql.streaming",
    "org.apache.kafka.clients.producer.internals",
    "org.apache.hadoop.conf",
    "org.apache.hadoop.fs",
]


def lines() -> dict[str, str]:
    """The second column of the table in the docstring of job/spark, by module."""
    assert job.spark.__doc__ is not None
    rows = [row.split(" | ") for row in job.spark.__doc__.splitlines() if row.startswith("| ")]
    return {row[0].removeprefix("| "): row[1] for row in rows[1:]}


def hooks() -> list[tuple[str, str, str]]:
    """Module of job/spark, class of Spark, member: a method or field, also of a superclass. An
    empty member: the class itself. Names that begin with _ are PySpark's."""
    found = []
    for hook, line in lines().items():
        for part in line.split("; "):
            if named := re.fullmatch(r"([A-Z][\w$]*)(?:: (.*))?", part):
                members = (named[2] or "").split(", ")
                found += [(hook, named[1], name) for name in members if not name.startswith("_")]
    return found


# (module of job/spark, module of PySpark, dotted name).
PYTHON = [
    ("session", "pyspark.context", "SparkContext._gateway"),
    ("session", "pyspark.context", "SparkContext._jvm"),
    ("session", "pyspark.context", "SparkContext._active_spark_context"),
    ("session", "pyspark.sql", "SparkSession._instantiatedSession"),
    ("listener", "pyspark.java_gateway", "ensure_callback_server_started"),
]


@pytest.mark.parametrize(("hook", "owner", "member"), hooks())
def test_spark_has_the_member_of_a_hook(
    spark: SparkSession, hook: str, owner: str, member: str
) -> None:
    lost = f"job/spark/{hook}.py needs {owner} {member}, which this version of Spark does not have"
    kind = load(spark, owner)
    assert kind is not None, lost
    assert not member or member in members(kind), lost


@pytest.mark.parametrize(("hook", "module", "name"), PYTHON)
def test_pyspark_has_the_name_of_a_hook(hook: str, module: str, name: str) -> None:
    lost = f"job/spark/{hook}.py needs {module}.{name}, which this version of PySpark does not have"
    try:
        found = importlib.import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError):
        pytest.fail(lost)


def test_pyspark_errors_have_their_java_cause(spark: SparkSession) -> None:
    with pytest.raises(Exception) as failed:
        spark.sql("SELECT raise_error('x')").collect()

    assert getattr(failed.value, "_origin", None) is not None, "job/spark/failures.py needs _origin"


def test_lost_member_is_named(spark: SparkSession) -> None:
    for owner, member in (("Gone", "purge"), ("WatermarkTracker", "gone")):
        with pytest.raises(
            AssertionError, match=rf"job/spark/watermark\.py needs {owner} {member},"
        ):
            test_spark_has_the_member_of_a_hook(spark, "watermark", owner, member)


def test_package_documents_each_hook() -> None:
    files = {path.stem for path in Path(str(job.spark.__file__)).parent.glob("*.py")}
    without_hooks = {
        *("__init__", "application", "error_origin", "java_classes", "lost_hooks"),
        "sql_questions",
    }
    assert files - without_hooks <= lines().keys()
    assert len(hooks()) > 70
    for hook, _, dotted in PYTHON:
        assert dotted.rpartition(".")[2] in lines()[hook], f"{hook}: {dotted}"


def load(spark: SparkSession, name: str) -> Any:
    """None: there is no such class."""
    jvm: Any = spark._jvm
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    for package in _PACKAGES:
        with suppress(Py4JError):
            return jvm.java.lang.Class.forName(f"{package}.{name}", False, loader)
    return None


def members(kind: Any) -> set[str]:
    """Names of all methods and fields of a class, its superclasses and interfaces."""
    found: set[str] = set()
    pending = [kind]
    while pending:
        each = pending.pop()
        found |= {member.getName() for member in each.getDeclaredMethods()}
        # Fields of a Scala class that a superclass in another package sees have a mangled name.
        found |= {member.getName() for member in each.getDeclaredFields()}
        pending += [*each.getInterfaces(), *filter(None, [each.getSuperclass()])]
    return found


def test_text_that_looks_like_a_variable_stays_as_it_is(spark: SparkSession) -> None:
    """Spark replaces `${env:NAME}` in SQL: a spec could write a password into the results."""
    spark.conf.unset("spark.sql.variable.substitute")
    assert "${env:PATH}" != spark.range(1).selectExpr("'${env:PATH}'").first()[0]

    spark.conf.set("spark.sql.variable.substitute", CONF["spark.sql.variable.substitute"])
    assert "${env:PATH}" == spark.range(1).selectExpr("'${env:PATH}'").first()[0]
