"""Every setting the plan chooses for the user, in one place, each with its reason.

Figures were measured on a prototype of this join on 2 cores; they compare settings with each other
and are no promise of speed. What the join does today: docs/benchmarks/results.md.
"""

from collections.abc import Mapping
from types import MappingProxyType

_STREAMING = "spark.sql.streaming."
_ROCKSDB = f"{_STREAMING}stateStore.rocksdb."

# Records read per topic and batch. It bounds the memory of one batch and how long the first
# results take when a long backlog is read; 200,000 was no faster.
MAX_OFFSETS_PER_TRIGGER = 100_000

# What RocksDB may take of each process's memory; state that does not fit is read from disk.
STATE_MEMORY_MB = 512

# How long Spark's stop() waits for the query's thread. Without a limit it waits for ever while the
# brokers are away (KAFKA-1894). The engine has waited for the batch's end before it calls stop().
STOP_TIMEOUT_SECONDS = 10

# Kafka's client can be told to run a login module that fetches code (CVE-2023-25194,
# CVE-2025-27818), and to read files and environment into its settings (CVE-2024-31141).
_KAFKA_DOORS_CLOSED = (
    "-Dorg.apache.kafka.disallowed.login.modules="
    "com.sun.security.auth.module.JndiLoginModule,com.sun.security.auth.module.LdapLoginModule "
    "-Dorg.apache.kafka.automatic.config.providers=none"
)

# A transaction that is open for longer is aborted by the broker, and tried again. After a crash
# that nobody restarts, readers of the output topic wait so long; a restart ends it at once. Below
# the broker's limit (transaction.max.timeout.ms, 15 minutes).
TRANSACTION_TIMEOUT_SECONDS = 300

# What the Java client takes by itself (max.request.size); raised where a topic takes more.
REQUEST_BYTES = 1_048_576

# The optimizing compiler waits for ten times as many calls as by default. On 2 cores it took time
# from the first batches: a cold start has its first result after 18.8 s with this, after 22.2 s
# without. What a busy join runs all the time is called that often within seconds.
_COMPILE_LATER = (
    "-XX:Tier4InvocationThreshold=50000 -XX:Tier4MinInvocationThreshold=6000 "
    "-XX:Tier4CompileThreshold=150000 -XX:Tier4BackEdgeThreshold=400000"
)

FROZEN_CONF: Mapping[str, str] = MappingProxyType(
    {
        # RocksDB keeps state off the heap; join state format 4 needs it.
        f"{_STREAMING}stateStore.providerClass": (
            "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
        ),
        # Format 4 evicts by time index instead of scanning all state. With hot keys it did 54,000
        # rows/s where format 2 did 800.
        f"{_STREAMING}join.stateFormatVersion": "4",
        f"{_ROCKSDB}mergeOperatorVersion": "2",
        # Unique ids per state commit: a zombie task cannot overwrite a newer commit's files.
        f"{_STREAMING}stateStore.checkpointFormatVersion": "2",
        f"{_STREAMING}stateStore.rowChecksum.enabled": "true",
        # Cannot be switched on later; lets sources be told apart by name.
        f"{_STREAMING}queryEvolution.enableSourceEvolution": "true",
    }
)
"""Spark conf that a checkpoint pins at its first start: Spark ignores later changes in silence."""

CONF: Mapping[str, str] = MappingProxyType(
    {
        # Commits write the changes only, not the whole store; needed to repair a bad snapshot.
        f"{_ROCKSDB}changelogCheckpointing.enabled": "true",
        # One cap for all stores of a process; without it each store takes its own.
        f"{_ROCKSDB}boundedMemoryUsage": "true",
        f"{_ROCKSDB}maxMemoryUsageMB": str(STATE_MEMORY_MB),
        # Spark's count of rows in state is a look-up for each write; state_rows.py keeps one.
        f"{_ROCKSDB}trackTotalNumberOfRows": "false",
        # Spark would filter a side by what it infers from the other side's filter, and which rows
        # are in state would be known to its optimizer alone. mirrored.py says which filters apply.
        "spark.sql.constraintPropagation.enabled": "false",
        # Outer rows come out when the watermark moves, without waiting for more input.
        f"{_STREAMING}noDataMicroBatches.enabled": "true",
        f"{_STREAMING}stopTimeout": f"{STOP_TIMEOUT_SECONDS}s",
        f"{_STREAMING}minBatchesToRetain": "20",
        # The job keeps its own history; Spark's would be held twice.
        f"{_STREAMING}numRecentProgressUpdates": "2",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.ansi.enabled": "true",
        # Of a Kafka header written twice the last one counts, as in Kafka's own lastHeader.
        "spark.sql.mapKeyDedupPolicy": "LAST_WIN",
        # A second attempt beside the first would fence it, and the query would fail.
        "spark.speculation": "false",
        # expr() could reach static Java methods and local files; the spec's SQL is checked before,
        # and these close the doors behind it.
        "spark.sql.restrictedMode.enabled": "true",
        "spark.sql.runSQLOnFiles": "false",
        # The state store's own threads fill the cores; nothing here reads the UI.
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        # Spark tells the UI of a batch's plan, even where there is none, in its longest form. And
        # it cleans the closures of each batch, except of what comes as evaluators. Both on the
        # query's thread, for which a small batch waits.
        "spark.sql.ui.explainMode": "simple",
        "spark.sql.execution.usePartitionEvaluator": "true",
        # Redacts what the default pattern misses: JAAS strings and PEM keys in options.
        "spark.redaction.regex": (
            "(?i)secret|password|token|access[.]?key|credential|jaas|private|keystore[.]key"
        ),
        # A stop in mid-batch runs a regex over a long message: smaller stacks overflow.
        "spark.driver.extraJavaOptions": (
            f"-Xss16m -XX:+UseParallelGC {_COMPILE_LATER} {_KAFKA_DOORS_CLOSED}"
        ),
        "spark.executor.extraJavaOptions": _KAFKA_DOORS_CLOSED,
    }
)
"""Spark conf that may differ from start to start."""

CHECKPOINT_CONF: Mapping[str, Mapping[str, str]] = MappingProxyType(
    {
        # Hadoop without its native library, which PySpark does not bring, starts `chmod` for each
        # file it makes on a local disk and `readlink` for each rename: some seventy processes a
        # batch. This file system asks Java instead, and this manager renames without asking what a
        # link points to.
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
        # A file appears when it is closed. The default writes another one and renames it, and on S3
        # to rename is to copy.
        "s3a": MappingProxyType(
            {
                f"{_STREAMING}checkpointFileManagerClass": (
                    "org.apache.spark.internal.io.cloud.AbortableStreamBasedCheckpointFileManager"
                ),
            }
        ),
    }
)
"""What is added for a checkpoint with that scheme. Elsewhere Spark's own choice is the right one:
it knows how a file appears at once on hdfs."""

SOURCE_OPTIONS: Mapping[str, str] = MappingProxyType(
    {
        "maxOffsetsPerTrigger": str(MAX_OFFSETS_PER_TRIGGER),
        # Records that retention removed before they were read are an error, never a silent gap.
        "failOnDataLoss": "true",
        # Without a broker the query fails after this, and the engine says so and tries again. Spark
        # by itself would be silent for three minutes.
        "kafka.default.api.timeout.ms": "15000",
        "kafka.request.timeout.ms": "10000",
        "fetchOffset.numRetries": "1",
        # Spark asks for a partition's offsets before each read, and a broker answers a connection's
        # requests in turn: behind a fetch that waits for records, 500 ms by default. Batches of two
        # records took 1.2 s so, 0.8 s with this. Nobody fetches while no task reads.
        "kafka.fetch.max.wait.ms": "10",
        # Records of aborted transactions are not data. The Java client's default reads them.
        "kafka.isolation.level": "read_committed",
    }
)

SINK_OPTIONS: Mapping[str, str] = MappingProxyType(
    {
        "kafka.acks": "all",
        "kafka.compression.type": "lz4",
        # Together +25% throughput against the defaults (0 ms, 16 KiB).
        "kafka.linger.ms": "5",
        "kafka.batch.size": "131072",
    }
)
