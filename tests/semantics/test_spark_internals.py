"""Every class and member of Spark that job/spark uses without a public API, found by reflection.

A new version of Spark that lost one fails here in seconds, with the name of the hook.
"""

import importlib
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

import job.spark
from job.plan.tuning import CONF

_EXECUTION = "org.apache.spark.sql.execution"
_RUNTIME = f"{_EXECUTION}.streaming.runtime"
_KAFKA = "org.apache.spark.sql.kafka010"
_MICRO_BATCH = f"{_RUNTIME}.MicroBatchExecution"

# (module of job/spark, class, member): a method or field, also of a superclass. An empty member:
# the class itself.
JVM: list[tuple[str, str, str]] = [
    ("session", "org.apache.spark.deploy.SparkSubmit", "main"),
    ("session", "org.apache.spark.SparkContext", "isStopped"),
    ("stream_execution", f"{_RUNTIME}.StreamingQueryWrapper", "streamingQuery"),
    ("stream_execution", _MICRO_BATCH, "awaitProgressLock"),
    ("stream_execution", _MICRO_BATCH, "lastExecution"),
    ("between_batches", _MICRO_BATCH, "offsetLog"),
    ("between_batches", _MICRO_BATCH, "commitLog"),
    ("between_batches", _MICRO_BATCH, "state"),
    ("between_batches", f"{_RUNTIME}.TERMINATED$", "MODULE$"),
    ("watermark", _MICRO_BATCH, "watermarkTracker"),
    ("watermark", _MICRO_BATCH, "noNewData"),
    ("watermark", _MICRO_BATCH, "watermarkPropagator"),
    ("watermark", f"{_RUNTIME}.WatermarkTracker", "currentWatermark"),
    ("watermark", f"{_RUNTIME}.WatermarkTracker", "setWatermark"),
    ("watermark", f"{_RUNTIME}.WatermarkPropagator", "purge"),
    (
        "watermark",
        f"{_EXECUTION}.streaming.operators.stateful.transformwithstate.TransformWithStateExec",
        "eventTimeWatermarkForLateEvents",
    ),
    ("observed_metrics", f"{_RUNTIME}.IncrementalExecution", "observedMetrics"),
    ("stopped_query", f"{_RUNTIME}.StreamExecution$", "PROXY_ERROR"),
    ("batch_read", _MICRO_BATCH, "sources"),
    ("batch_read", _MICRO_BATCH, "getLatestExecutionContext"),
    ("batch_read", f"{_RUNTIME}.StreamExecutionContext", "endOffsets"),
    ("batch_read", f"{_RUNTIME}.StreamExecutionContext", "latestOffsets"),
    ("batch_read", f"{_KAFKA}.KafkaMicroBatchStream", "kafkaOffsetReader"),
    ("batch_read", f"{_KAFKA}.JsonUtils$", "partitionOffsets"),
    ("kafka_reader", f"{_KAFKA}.KafkaMicroBatchStream", "kafkaOffsetReader"),
    ("kafka_reader", f"{_KAFKA}.KafkaOffsetReader", "fetchLatestOffsets"),
    (
        "executed_join",
        f"{_EXECUTION}.streaming.operators.stateful.join.StreamingSymmetricHashJoinExec",
        "eventTimeWatermarkForLateEvents",
    ),
    (
        "executed_join",
        f"{_EXECUTION}.streaming.operators.stateful.join.StreamingSymmetricHashJoinExec",
        "metrics",
    ),
    ("executed_join", f"{_EXECUTION}.datasources.v2.MicroBatchScanExec", "start"),
    ("executed_join", f"{_EXECUTION}.datasources.v2.MicroBatchScanExec", "end"),
    ("interval_read", f"{_RUNTIME}.MicroBatchExecutionContext", "isCurrentBatchConstructed"),
    ("interval_read", f"{_RUNTIME}.MicroBatchExecutionContext", "previousContext"),
    ("interval_read", f"{_RUNTIME}.StreamExecutionContext", "executionPlan"),
    ("interval_read", f"{_RUNTIME}.StreamExecutionContext", "batchId"),
    ("interval_duration", _MICRO_BATCH, "logicalPlan"),
    (
        "interval_duration",
        f"{_EXECUTION}.datasources.v2.StreamingDataSourceV2ScanRelation",
        "relation",
    ),
    (
        "interval_duration",
        f"{_EXECUTION}.datasources.v2.StreamingDataSourceV2Relation",
        "realTimeModeDuration",
    ),
    ("interval_duration", f"{_EXECUTION}.streaming.RealTimeTrigger", "create"),
    ("interval_duration", f"{_EXECUTION}.streaming.RealTimeTrigger", "unapply"),
    ("live_rows", "org.apache.spark.sql.internal.SharedState", "statusStore"),
    ("live_rows", f"{_EXECUTION}.ui.SQLAppStatusStore", "executionsCount"),
    ("live_rows", f"{_EXECUTION}.ui.SQLAppStatusStore", "executionsList"),
    ("live_rows", f"{_EXECUTION}.ui.SQLAppStatusStore", "executionMetrics"),
    ("live_rows", f"{_EXECUTION}.SQLExecution", "getQueryExecution"),
    ("live_rows", f"{_EXECUTION}.datasources.v2.RealTimeStreamScanExec", ""),
    ("join_input", f"{_EXECUTION}.QueryExecution", "optimizedPlan"),
    ("join_input", "org.apache.spark.sql.classic.Dataset$", "ofRows"),
    (
        "kafka_partitioner",
        "org.apache.kafka.clients.producer.internals.BuiltInPartitioner",
        "partitionForKey",
    ),
    ("kafka_partitioner", "org.apache.spark.sql.catalyst.expressions.objects.StaticInvoke", ""),
    ("kafka_partitioner", "org.apache.spark.sql.classic.ExpressionUtils", "expression"),
    ("try_eval", "org.apache.spark.sql.catalyst.expressions.TryEval", ""),
    ("try_eval", "org.apache.spark.sql.catalyst.analysis.FunctionRegistryBase$", "build"),
    (
        "try_eval",
        "org.apache.spark.sql.catalyst.analysis.FunctionRegistry",
        "createOrReplaceTempFunction",
    ),
    ("listener", "org.apache.spark.sql.streaming.PythonStreamingQueryListenerWrapper", ""),
    ("listener", "org.apache.spark.sql.streaming.PythonStreamingQueryListener", "onQueryProgress"),
    ("listener", "org.apache.spark.sql.streaming.StreamingQueryProgress", "json"),
    (
        "before_first_batch",
        "org.apache.spark.sql.streaming.PythonStreamingQueryListenerWrapper",
        "",
    ),
    ("before_first_batch", "org.apache.spark.sql.streaming.StreamingQueryManager", "addListener"),
    (
        "before_first_batch",
        "org.apache.spark.sql.streaming.StreamingQueryManager",
        "removeListener",
    ),
    ("before_first_batch", "org.apache.spark.sql.streaming.StreamingQueryManager", "get"),
    (
        "hadoop_settings",
        "org.apache.spark.deploy.SparkHadoopUtil",
        "appendS3AndSparkHadoopHiveConfigurations",
    ),
    ("hadoop_settings", "org.apache.hadoop.conf.Configuration", "updatingResource"),
    ("hadoop_files", "org.apache.spark.sql.internal.SessionState", "newHadoopConf"),
    ("hadoop_files", "org.apache.hadoop.fs.Options$Rename", "OVERWRITE"),
    ("executors", "org.apache.spark.SparkContext", "getExecutorMemoryStatus"),
    ("executors", "org.apache.spark.SparkContext", "resourceProfileManager"),
    ("executors", "org.apache.spark.SparkContext", "maxNumConcurrentTasks"),
    ("executors", "org.apache.spark.SparkContext", "taskScheduler"),
    ("executors", "org.apache.spark.scheduler.TaskScheduler", "rootPool"),
    ("executors", "org.apache.spark.scheduler.Pool", "runningTasks"),
    ("state_stores", f"{_EXECUTION}.streaming.state.StateStore$", "stopMaintenanceTaskWithoutLock"),
    ("state_stores", f"{_EXECUTION}.streaming.state.StateStore$", "stop"),
]

# (module of job/spark, module of PySpark, dotted name).
PYTHON = [
    ("session", "pyspark.context", "SparkContext._gateway"),
    ("session", "pyspark.context", "SparkContext._jvm"),
    ("session", "pyspark.context", "SparkContext._active_spark_context"),
    ("session", "pyspark.sql", "SparkSession._instantiatedSession"),
    ("listener", "pyspark.java_gateway", "ensure_callback_server_started"),
]


@pytest.mark.parametrize(("hook", "owner", "member"), JVM)
def test_spark_has_the_member_of_a_hook(
    spark: SparkSession, hook: str, owner: str, member: str
) -> None:
    lost = f"job/spark/{hook}.py needs {owner} {member}, which this version of Spark does not have"
    try:
        kind = load(spark, owner)
    except Py4JError:
        pytest.fail(lost)
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
    with pytest.raises(pytest.fail.Exception, match=r"job/spark/watermark\.py needs .*\.Gone "):
        test_spark_has_the_member_of_a_hook(spark, "watermark", f"{_RUNTIME}.Gone", "purge")
    with pytest.raises(AssertionError, match=r"job/spark/watermark\.py needs .*Tracker gone,"):
        test_spark_has_the_member_of_a_hook(
            spark, "watermark", f"{_RUNTIME}.WatermarkTracker", "gone"
        )


def test_package_documents_each_hook() -> None:
    lines = {line.split("|")[1].strip(): line for line in text().splitlines() if "|" in line}
    for hook, owner, member in JVM:
        for name in (owner.rpartition(".")[2], member):
            assert name in lines[hook] or name in INHERITED, f"{hook}: {owner} {member}"
    files = {path.stem for path in Path(str(job.spark.__file__)).parent.glob("*.py")}
    without_hooks = {
        *("__init__", "application", "error_origin", "java_classes", "lost_hooks"),
        "sql_questions",
    }
    assert files - without_hooks <= lines.keys()
    for hook, _, dotted in PYTHON:
        assert dotted.rpartition(".")[2] in lines[hook], f"{hook}: {dotted}"


# Documented by the class that declares their members, or not private themselves.
INHERITED = {"MicroBatchExecution", "PythonStreamingQueryListener", "onQueryProgress"} | {
    "StreamingQueryProgress",
    "json",
}


def text() -> str:
    assert job.spark.__doc__ is not None
    return job.spark.__doc__


def load(spark: SparkSession, name: str) -> Any:
    jvm: Any = spark._jvm
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    return jvm.java.lang.Class.forName(name, False, loader)


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
