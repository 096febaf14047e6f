"""All Spark and Kafka settings that the plan chooses, each with its reason.

The figures are from a prototype of this join on 2 cores; they only compare settings with each
other. Current results: docs/benchmarks/results.md.
"""

from collections.abc import Mapping
from types import MappingProxyType

DRIVER_OPTIONS = "spark.driver.extraJavaOptions"
EXECUTOR_OPTIONS = "spark.executor.extraJavaOptions"
"""Settings with the options of the JVMs."""

_STREAMING = "spark.sql.streaming."
_ROCKSDB = f"{_STREAMING}stateStore.rocksdb."
CHANGELOG = f"{_ROCKSDB}changelogCheckpointing.enabled"

# Records read per topic and batch. Limits the memory of a batch, and the time to the first results
# of a long backlog; 200,000 was no faster.
MAX_OFFSETS_PER_TRIGGER = 100_000

# Memory of RocksDB in each process. State that does not fit is read from disk.
STATE_MEMORY_MB = 512

# How long Spark's stop() waits for the query's thread. Without a limit it waits indefinitely while
# no broker answers (KAFKA-1894). The job waits for the end of the batch before it calls stop().
STOP_TIMEOUT_SECONDS = 10

# Kafka's client can be configured to run a login module that loads code (CVE-2023-25194,
# CVE-2025-27818), and to read files and environment into its settings (CVE-2024-31141).
_KAFKA_RESTRICTIONS = (
    "-Dorg.apache.kafka.disallowed.login.modules="
    "com.sun.security.auth.module.JndiLoginModule,com.sun.security.auth.module.LdapLoginModule "
    "-Dorg.apache.kafka.automatic.config.providers=none"
)

# Some functions of Spark use the default locale of the JVM: in Turkish, lower('IÉ') is 'ıé'.
# user.region has precedence over user.country, script and variant. Spark and libraries format
# numbers in messages by the locale of category `format`.
_LOCALE = (
    "-Duser.language=en -Duser.country=US -Duser.region=US "
    "-Duser.language.format=en -Duser.country.format=US "
    "-Dfile.encoding=UTF-8 -Duser.timezone=UTC"
)

_EVERY_JVM = f"{_LOCALE} {_KAFKA_RESTRICTIONS}"

# The broker aborts a transaction that is open for longer, and the job retries it. After a crash
# without restart, consumers of the output topic wait this long; a restart aborts it at once. Below
# the broker's limit (transaction.max.timeout.ms, 15 minutes).
TRANSACTION_TIMEOUT_SECONDS = 300

# Default of the Java client's max.request.size; raised if a topic accepts larger records.
REQUEST_BYTES = 1_048_576

# Default of the Java client's buffer.memory; raised likewise.
BUFFER_BYTES = 33_554_432

# The optimizing compiler waits for ten times as many calls as by default. On 2 cores it slowed down
# the first batches: a cold start has its first result after 18.8 s with this, after 22.2 s without.
# Hot methods of a busy join reach that number of calls within seconds.
_COMPILE_LATER = (
    "-XX:Tier4InvocationThreshold=50000 -XX:Tier4MinInvocationThreshold=6000 "
    "-XX:Tier4CompileThreshold=150000 -XX:Tier4BackEdgeThreshold=400000"
)


def driver_options(*more: str) -> str:
    """Options of the driver's JVM, with `more` of one engine."""
    # A stop during a batch applies a regex to a long message: smaller stacks overflow.
    return " ".join(["-Xss16m -XX:+UseParallelGC", *more, _EVERY_JVM])


def overriding_options(environment: Mapping[str, str]) -> list[str]:
    """Options of an environment that replace those of every JVM of the job.

    Java appends `_JAVA_OPTIONS` to the command line, and the last option counts. It inserts
    JAVA_TOOL_OPTIONS and JDK_JAVA_OPTIONS before the command line, as Spark does with
    spark.executor.defaultJavaOptions.
    """
    names = {option.partition("=")[0] for option in _EVERY_JVM.split()}
    appended = environment.get("_JAVA_OPTIONS", "").split()
    return [option for option in appended if option.partition("=")[0] in names]


def can_share_jvm(old: Mapping[str, str], new: Mapping[str, str]) -> bool:
    """Whether a query with the Spark conf `new` can follow a query with `old` in the same JVM.

    The options of a running JVM cannot change. Compile thresholds may differ, because they affect
    only the speed.
    """
    return _required_options(old) == _required_options(new)


def _required_options(conf: Mapping[str, str]) -> set[str]:
    return set(conf[DRIVER_OPTIONS].split()) - set(_COMPILE_LATER.split())


FROZEN_CONF: Mapping[str, str] = MappingProxyType(
    {
        # RocksDB keeps state off the heap; join state format 4 needs it.
        f"{_STREAMING}stateStore.providerClass": (
            "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
        ),
        # Format 4 evicts by a time index instead of scanning all state. With hot keys it processed
        # 54,000 rows/s, format 2 800.
        f"{_STREAMING}join.stateFormatVersion": "4",
        f"{_ROCKSDB}mergeOperatorVersion": "2",
        # Unique ids per state commit: a zombie task cannot overwrite a newer commit's files.
        f"{_STREAMING}stateStore.checkpointFormatVersion": "2",
        f"{_STREAMING}stateStore.rowChecksum.enabled": "true",
        # Cannot be enabled later; sources are then identified by name.
        f"{_STREAMING}queryEvolution.enableSourceEvolution": "true",
    }
)
"""Spark conf that a checkpoint pins at its first start: Spark silently ignores later changes."""

CONF: Mapping[str, str] = MappingProxyType(
    {
        # Commits write only the changes, not the whole store; needed to repair a corrupt snapshot.
        CHANGELOG: "true",
        # One limit for all stores of a process; without it each store has its own.
        f"{_ROCKSDB}boundedMemoryUsage": "true",
        f"{_ROCKSDB}maxMemoryUsageMB": str(STATE_MEMORY_MB),
        # Spark counts state rows with a lookup per write; query/state_rows.py counts without.
        f"{_ROCKSDB}trackTotalNumberOfRows": "false",
        # Spark would infer filters of a side from the other side's filter by optimizer rules.
        # mirrored.py decides instead, so that the rows in state are predictable.
        "spark.sql.constraintPropagation.enabled": "false",
        # HotSpot never compiles a larger method. Spark then generates several methods for a step:
        # with five DECIMAL columns that was 25 % faster.
        "spark.sql.codegen.hugeMethodLimit": "8000",
        # Unmatched rows are emitted when the watermark advances, without waiting for more input.
        f"{_STREAMING}noDataMicroBatches.enabled": "true",
        f"{_STREAMING}stopTimeout": f"{STOP_TIMEOUT_SECONDS}s",
        # A change of the join waits this long for a snapshot of the old query's state.
        f"{_STREAMING}stateStore.maintenanceShutdownTimeout": "10s",
        f"{_STREAMING}minBatchesToRetain": "20",
        # The job has its own history.
        f"{_STREAMING}numRecentProgressUpdates": "2",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.ansi.enabled": "true",
        # The last of two Kafka headers with one name is used, as in Kafka's lastHeader.
        "spark.sql.mapKeyDedupPolicy": "LAST_WIN",
        # A speculative attempt would fence the first one, and the query would fail.
        "spark.speculation": "false",
        # expr() could reach static Java methods and local files. The SQL of the spec is checked
        # before; these settings are a second barrier.
        "spark.sql.restrictedMode.enabled": "true",
        "spark.sql.runSQLOnFiles": "false",
        # Otherwise Spark replaces `${env:NAME}` and `${name}` in the SQL of the spec.
        "spark.sql.variable.substitute": "false",
        # The state store's threads use all cores, and the project does not use the UI.
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        # Spark formats each batch's plan for the UI in its longest form, even without a UI, and
        # cleans the closures of each batch unless they are evaluators. Both run on the query's
        # thread and delay small batches.
        "spark.sql.ui.explainMode": "simple",
        "spark.sql.execution.usePartitionEvaluator": "true",
        # Also redacts JAAS strings and PEM keys in options, which the default pattern misses.
        "spark.redaction.regex": (
            "(?i)secret|password|token|access[.]?key|credential|jaas|private|keystore[.]key"
        ),
        DRIVER_OPTIONS: driver_options(_COMPILE_LATER),
        EXECUTOR_OPTIONS: _EVERY_JVM,
    }
)
"""Spark conf that may change between starts."""

TABLE_CONF: Mapping[str, str] = MappingProxyType(
    {
        # No result waits for a watermark, so no batch runs only because it has advanced.
        f"{_STREAMING}noDataMicroBatches.enabled": "false",
    }
)
"""Spark conf of a join with a table, in place of that of CONF."""

CHECKPOINT_CONF: Mapping[str, Mapping[str, str]] = MappingProxyType(
    {
        # Without its native library, which PySpark does not include, Hadoop starts `chmod` for each
        # new file on a local disk and `readlink` for each rename: about 70 processes per batch.
        # This file system calls Java instead, and this manager renames without resolving links.
        "file": MappingProxyType(
            {
                "spark.hadoop.fs.file.impl": (
                    "com.globalmentor.apache.hadoop.fs.BareLocalFileSystem"
                ),
                f"{_STREAMING}checkpointFileManagerClass": (
                    "org.apache.spark.sql.execution.streaming.checkpointing."
                    "FileSystemBasedCheckpointFileManager"
                ),
            }
        ),
        # A file becomes visible when it is closed. The default writes a temporary file and renames
        # it, which on S3 is a copy.
        "s3a": MappingProxyType(
            {
                f"{_STREAMING}checkpointFileManagerClass": (
                    "org.apache.spark.internal.io.cloud.AbortableStreamBasedCheckpointFileManager"
                ),
            }
        ),
    }
)
"""Additional conf by the scheme of the checkpoint. For other schemes, e.g. hdfs, Spark's default is
atomic."""

RESULT_BYTES_MIN = 1_000
"""The smallest `max.message.bytes` of an output topic: librdkafka's limit for a batch of
records."""

DEAD_LETTER_BYTES_MIN = 16_384
"""Headers and message of a dead letter whose record is left out because it is too large."""

SOURCE_OPTIONS: Mapping[str, str] = MappingProxyType(
    {
        "maxOffsetsPerTrigger": str(MAX_OFFSETS_PER_TRIGGER),
        # Records that retention deletes before they are read are an error, not a silent gap.
        "failOnDataLoss": "true",
        # Without a broker the query fails after this time, and the job reports it and retries.
        # With the defaults Spark reports nothing for three minutes.
        "kafka.default.api.timeout.ms": "15000",
        "kafka.request.timeout.ms": "10000",
        "fetchOffset.numRetries": "1",
        # Spark requests a partition's offsets before each read. A broker answers the requests of a
        # connection in order: after a fetch that waits for records, 500 ms by default. Batches of
        # two records took 1.2 s with the default, 0.8 s with this. No fetch runs between batches.
        "kafka.fetch.max.wait.ms": "10",
        # Records of aborted transactions are not data, but the Java client reads them by default.
        "kafka.isolation.level": "read_committed",
    }
)

TABLE_SOURCE_OPTIONS: Mapping[str, str] = MappingProxyType(
    {name: value for name, value in SOURCE_OPTIONS.items() if name != "maxOffsetsPerTrigger"}
)
"""Of a table, whose batches the driver limits: one with records of the stream reads the table to
its end (event_time/loading.py)."""

SINK_OPTIONS: Mapping[str, str] = MappingProxyType(
    {
        "kafka.acks": "all",
        "kafka.compression.type": "lz4",
        # Together +25% throughput against the defaults (0 ms, 16 KiB).
        "kafka.linger.ms": "5",
        "kafka.batch.size": "131072",
    }
)
