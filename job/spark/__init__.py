"""Spark's JVM and session, causes of failures, and the private Spark API that Python calls.

One module per hook. The last column is the effect of a missing hook; "required"
means that Spark has no public way. tests/semantics/test_spark_internals.py checks by reflection
that each class and member exists in the running version.

| module | class: members | reason | without it |
|---|---|---|---|
| session | SparkSubmit: main; `_PYSPARK_DRIVER_CONN_INFO_PATH`; SparkContext: _gateway, _jvm, _active_spark_context, isStopped; SparkSession: _instantiatedSession | starts the JVM early, removes secrets from its output, ends it with the job; replaces a killed JVM | required |
| stream_execution | StreamingQueryWrapper: streamingQuery; StreamExecution: awaitProgressLock, lastExecution | the running query below PySpark's StreamingQuery | required |
| between_batches | StreamExecution: offsetLog, commitLog, state; TERMINATED$: MODULE$ | pauses and stops a query without interrupting a batch | required |
| watermark | column metadata `spark.watermarkDelayMs`; MicroBatchExecution: watermarkTracker, noNewData, watermarkPropagator; WatermarkTracker: currentWatermark, setWatermark; WatermarkPropagator: purge; TransformWithStateExec: eventTimeWatermarkForLateEvents | the job's own watermark | required |
| observed_metrics | IncrementalExecution: observedMetrics | metrics of a batch before its commit | required |
| batch_read | MicroBatchExecution: sources, getLatestExecutionContext; StreamExecutionContext: endOffsets, latestOffsets; KafkaMicroBatchStream: kafkaOffsetReader; JsonUtils$: partitionOffsets | offsets of a batch before its commit | required |
| kafka_reader | KafkaMicroBatchStream: kafkaOffsetReader; KafkaOffsetReader: fetchLatestOffsets | limits how far a batch reads each partition | reads without these limits |
| before_first_batch | StreamingQueryManager: addListener, removeListener, get; PythonStreamingQueryListenerWrapper | limits the first batch of a changed query, records the first interval | required |
| interval_read | MicroBatchExecutionContext: isCurrentBatchConstructed, previousContext; StreamExecutionContext: executionPlan, batchId | what an interval of real-time mode has read | required |
| interval_duration | MicroBatchExecution: logicalPlan; StreamingDataSourceV2ScanRelation: relation; StreamingDataSourceV2Relation: realTimeModeDuration; RealTimeTrigger: create, unapply | short first intervals | all intervals have the same duration |
| live_rows | SharedState: statusStore; SQLAppStatusStore: executionsCount, executionsList, executionMetrics; SQLExecution: getQueryExecution; RealTimeStreamScanExec: metrics | figures while an interval runs | required |
| executed_join | StreamingSymmetricHashJoinExec: eventTimeWatermarkForLateEvents, metrics; MicroBatchScanExec: start, end | late rows and offsets of a batch before its commit | required |
| join_input | QueryExecution: optimizedPlan; Dataset$: ofRows | rows that reach the join, to find the late ones | required |
| try_eval | TryEval; FunctionRegistryBase$: build; FunctionRegistry: createOrReplaceTempFunction | null where an expression fails on a row | required |
| in_time_zone | FunctionRegistry: createOrReplaceTempFunction | expressions of a side in its time zone | required |
| static_call | StaticInvoke; ExpressionUtils: expression, column | calls of static Java methods as columns | required |
| kafka_partitioner | BuiltInPartitioner: partitionForKey | the partition of a key, as Kafka's Java client chooses it | required |
| listener | PythonStreamingQueryListenerWrapper; ensure_callback_server_started | one call per progress event, not a hundred | PySpark's StreamingQueryListener |
| hadoop_settings | SparkHadoopUtil: appendS3AndSparkHadoopHiveConfigurations; Configuration: updatingResource | saves a quarter of the query thread's CPU time in small batches | keeps all settings |
| hadoop_files | SessionState: newHadoopConf; Options$Rename: OVERWRITE | file systems with the session's settings; a rename that overwrites | required |
| executors | SparkContext: getExecutorMemoryStatus, isLocal, resourceProfileManager, maxNumConcurrentTasks, taskScheduler; TaskScheduler: rootPool; Pool: runningTasks | number of executors, task slots and running tasks | required |
| state_stores | StateStore$: stopMaintenanceTaskWithoutLock, stop | the next query of a change uses the same JVM | the change starts another JVM |
| stopped_query | StreamExecution$: PROXY_ERROR | Python code that a stop interrupts ends the query without a failure | the stopped query fails |
| failures | PySparkException._origin; names of error classes | the Java cause of a PySpark error | required |

Other parts of the job also depend on Spark's internals:

- checkpoint/join_state.py: the names and columns of the join's state stores;
- replay/cut.py: the text of the offset log;
- checkpoint/commits.py: the commit log;
- change/files.py: the file with the start offsets of the Kafka source;
- the Java classes of join/, writer/, encoding/ and sql/: classes of Catalyst, of the state store and of the
  shuffle of real-time mode. Their compilation checks that each member exists;
- join/processor.py, writer/transactions.py and the modules of encoding/ call these classes with
  Spark's objects in the JVM: SparkContext: _gateway, _jsc; SparkSession: _jvm; DataFrame: _jdf;
  DataStreamWriter: _jwrite; ensure_callback_server_started.
"""  # noqa: E501
