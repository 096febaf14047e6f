"""Lines of Spark in the log, of a JVM that starts as in a job."""

import json
import subprocess
import sys

from job.spark import failures

# Logs a warning of a batch with an exception and a secret, and messages of Spark's classes. Writes
# a line past the logger.
PROGRAM = """
from contextlib import closing
from job.logs import log_to_stderr
from job.plan.tuning import CONF
from job.redaction import Redaction
from job.settings import JobSettings
from job.spark.session import Jvm

settings, redaction = JobSettings(log_format="json", driver_memory="512m"), Redaction()
redaction.add(['se"cret'])
log_to_stderr(redaction, settings.log_format)
with closing(Jvm(settings, CONF["spark.driver.extraJavaOptions"], redaction)) as jvm:
    java = jvm.session(settings, {}).sparkContext._jvm
    java.org.slf4j.MDC.put("queryId", "q1")
    java.org.slf4j.MDC.put("batchId", "7")
    error = java.java.lang.IllegalStateException("the cause")
    logger = java.org.slf4j.LoggerFactory.getLogger
    logger("org.example.Task").warn('lost se"cret', error)
    shuffle = "org.apache.spark.shuffle.streaming.StreamingShuffle"
    logger(shuffle + "ClientHandler").error("Error sending credit control message", error)
    logger(shuffle + "Reader").error("Task discovery thread failed.", error)
    logger("org.apache.spark.TaskContextImpl").error("Error in TaskCompletionListener", error)
    logger(shuffle + "Writer").warn("Row size is larger than the block size")
    java.System.err.println("past the logger")
"""


def test_each_line_is_an_object_with_the_documented_fields_and_no_error_is_logged_twice() -> None:
    """The errors of the shuffle and of listeners are reported as failures of their tasks."""
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=300
    )
    assert 0 == ended.returncode, ended.stderr
    lines = [json.loads(line) for line in ended.stderr.splitlines()]
    [lost] = [line for line in lines if line.get("logger") == "org.example.Task"]
    assert "lost [redacted]" == lost["event"]
    assert ("warn", "q1", "7") == (lost["level"], lost["query_id"], lost["batch_id"])
    assert lost["exception"].startswith("java.lang.IllegalStateException: the cause\n")
    assert 27 == len(lost["timestamp"])
    assert lost["timestamp"].endswith("Z")
    [other] = [line for line in lines if line["event"] == "past the logger"]
    assert ("info", "jvm") == (other["level"], other["logger"])
    assert 'se"cret' not in ended.stderr
    assert ["Row size is larger than the block size"] == [
        line["event"] for line in lines if line.get("logger", "").startswith("org.apache.spark")
    ]


# Logs errors of tasks, as Spark does: with the stack trace in the message.
FAILING_TASKS = """
import sys
from contextlib import closing
from job.logs import log_to_stderr
from job.plan.tuning import CONF
from job.redaction import Redaction
from job.settings import JobSettings
from job.spark.session import Jvm

settings, redaction = JobSettings(driver_memory="512m"), Redaction()
with closing(Jvm(settings, CONF["spark.driver.extraJavaOptions"], redaction)) as jvm:
    java = jvm.session(settings, {}).sparkContext._jvm
    logger = java.org.slf4j.LoggerFactory.getLogger("org.apache.spark.scheduler.TaskSetManager")
    for error in sys.argv[1:]:
        frame = "\\n\\tat org.A.f(A.java:1)\\n"
        logger.warn(f"Lost task: {error}{frame}")
        logger.warn(f"Lost task: wrapped{frame}Caused by: {error}\\n\\tat org.B")
        logger.error("Task 0 in stage 4.0 failed 1 times; aborting job")
"""
EXPLAINED = [
    failures._RAISED,
    *failures._DAMAGE,
    *failures._DISK_FULL,
    *failures._CANNOT_WRITE,
    *failures._REGISTRY,
    *failures._SECURITY,
    *failures._OFFSET_LOST,
    "org.apache.kafka.common.errors.SaslAuthenticationException",
]


def test_readable_log_has_the_stack_trace_of_a_task_only_if_no_rule_explains_its_error() -> None:
    unknown = "java.lang.IllegalStateException"
    ended = subprocess.run(
        [sys.executable, "-c", FAILING_TASKS, *EXPLAINED, unknown],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert 0 == ended.returncode, ended.stderr
    explained, separator, rest = ended.stderr.partition(f"Lost task: {unknown}")
    assert separator
    assert "\tat " not in explained
    assert "aborting job" not in ended.stderr
    assert 2 * len(EXPLAINED) == explained.count("Lost task: ")
    assert all(f"Lost task: {error}\n" in explained for error in EXPLAINED)
    assert ["\tat org.A.f(A.java:1)"] * 2 + ["\tat org.B"] == [
        line for line in rest.splitlines() if line.startswith("\tat ")
    ]
