"""The Spark session of the tests: small, quiet, and with short micro-batches.

These settings do not change results. A test sets the settings that it tests.
"""

import atexit
import logging
import os
import shutil
import tempfile
from pathlib import Path

from py4j import java_gateway
from pyspark.sql import SparkSession

from job.installation.jars import jar_folder
from job.java_jar import JAVA_JAR
from job.jvm_class import jvm_class
from job.plan.tuning import CHECKPOINT_CONF


def fast_folder() -> Path | None:
    """Folder for temporary files: in memory if possible."""
    memory = Path("/dev/shm")
    return memory if os.access(memory, os.W_OK) else None


TEST_CLASSES = Path(tempfile.mkdtemp(prefix="streamjoin-classes-", dir=fast_folder()))
"""A folder on the class path: a class that a test compiles into it can be loaded."""
atexit.register(shutil.rmtree, TEST_CLASSES, ignore_errors=True)

_CONF = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.ansi.enabled": "true",
    "spark.sql.shuffle.partitions": "1",
    "spark.default.parallelism": "1",
    # Tests run for seconds: the optimizing compiler would cost more than it saves.
    # The code cache of that mode is small; when it is full, the JVM compiles nothing more.
    # Plans are short-lived: with a large young generation few of them are copied.
    "spark.driver.extraJavaOptions": (
        "-Xss16m -Xmn400m -XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -XX:+UseSerialGC"
    ),
    # Records of 40 MiB have several copies, and the tests before have left much.
    "spark.driver.memory": "2g",
    "spark.sql.ui.retainedExecutions": "20",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    # Interpreting a plan that runs once on a few rows is faster than compiling it.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
    # Maintenance closes the state stores of queries that have ended.
    "spark.sql.streaming.stateStore.maintenanceInterval": "20s",
    "spark.sql.streaming.pollingDelay": "1ms",
    "spark.sql.streaming.metricsEnabled": "false",
    # Checksums double the number of files.
    "spark.sql.streaming.checkpoint.fileChecksum.enabled": "false",
    "spark.driver.extraClassPath": ":".join(
        [f"{jar_folder('spark')}/*", str(jar_folder("spark") / JAVA_JAR), str(TEST_CLASSES)]
    ),
    **CHECKPOINT_CONF["file"],
    **({"spark.local.dir": str(folder)} if (folder := fast_folder()) else {}),
}


def start_session() -> SparkSession:
    builder = SparkSession.builder.master("local[2]").appName("streamjoin tests")
    for name, value in _CONF.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    # It logs each error of a query with its Java stack; the tests check the errors.
    logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL + 1)
    # PySpark asks this up to 14 times for each Java exception. Py4J's own function takes 4 ms, for
    # it looks up the class again, by a dotted name.
    is_instance = jvm_class(session._jvm, "py4j.reflection.TypeUtil").isInstanceOf
    java_gateway.is_instance_of = lambda _, java_object, name: is_instance(name, java_object)
    return session
