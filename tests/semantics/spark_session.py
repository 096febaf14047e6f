"""The Spark session of the tests: small, quiet, and as quick per micro-batch as Spark gets.

Nothing here changes what a query means; what a test is about, it sets itself.
"""

import atexit
import logging
import os
import shutil
import tempfile
from pathlib import Path

from pyspark.sql import SparkSession

from deploy.local.jars import jar_folder
from job.plan.tuning import CHECKPOINT_CONF
from job.real_time.processor_jar import PROCESSOR_JAR


def fast_folder() -> Path | None:
    """For files nobody keeps: in memory where the machine offers it."""
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
    # Tests live for seconds: the optimizing compiler would cost more than it gives.
    # The code cache of that mode is small; when it is full, nothing more is compiled at all.
    # Plans die young: given room, few of them are copied.
    "spark.driver.extraJavaOptions": (
        "-Xss16m -Xmn400m -XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -XX:+UseSerialGC"
    ),
    "spark.driver.memory": "1g",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    # A plan that runs once on a handful of rows is interpreted sooner than compiled.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
    # Maintenance is what closes the state stores of queries that have ended.
    "spark.sql.streaming.stateStore.maintenanceInterval": "20s",
    "spark.sql.streaming.pollingDelay": "1ms",
    "spark.sql.streaming.metricsEnabled": "false",
    # Checksums double the files.
    "spark.sql.streaming.checkpoint.fileChecksum.enabled": "false",
    "spark.driver.extraClassPath": ":".join(
        [f"{jar_folder('spark')}/*", str(jar_folder("spark") / PROCESSOR_JAR), str(TEST_CLASSES)]
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
    # Logs each error of a query with its whole Java stack; the tests look at the errors themselves.
    logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL + 1)
    return session
