package streamjoin;

import java.io.Serializable;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerConfig;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import org.apache.spark.SparkContext;
import org.apache.spark.util.LongAccumulator;

/** Topics and identity of one run of the query. transactions.py derives them from the plan. */
public final class DeliveryTarget implements Serializable {
  /** Settings of all of Kafka's clients, with secrets. */
  final Map<String, Object> client;

  private final Map<String, Object> producer;
  private final String name;
  private final SlotId onlySlot;
  final String run;
  final String queryId;
  final String outputTopic;
  final String commitTopic;

  /** First batch of the checkpoint that is delivered exactly once. */
  final long since;

  /** Batch id of the recorded interval that the run repeats. Null: the run repeats none. */
  final Long repeats;

  /** Fence number of the run. */
  final long fence;

  final long commitIntervalNanos;
  final long transactionTimeoutNanos;

  /** Committed transactions. */
  final LongAccumulator committed;

  /** Partitions of micro-batches that an earlier attempt had delivered. */
  final LongAccumulator skipped;

  /** Results without dead letters. */
  final LongAccumulator results;

  /**
   * @param slot name of the only slot, and `commitPartition` its partition of the commit topic; null:
   *     each state partition has a slot
   * @param repeats negative if the run repeats no interval
   */
  public DeliveryTarget(
      SparkContext context,
      Map<String, String> client,
      Map<String, String> producer,
      String run,
      String name,
      String queryId,
      String outputTopic,
      String commitTopic,
      String slot,
      int commitPartition,
      long since,
      long repeats,
      long fence,
      long commitIntervalMs,
      long transactionTimeoutMs) {
    this.client = new HashMap<>(client);
    this.producer = new HashMap<>(producer);
    this.run = run;
    this.name = name;
    this.queryId = queryId;
    this.outputTopic = outputTopic;
    this.commitTopic = commitTopic;
    onlySlot = slot == null ? null : new SlotId(slot, commitPartition);
    this.since = since;
    this.repeats = repeats < 0 ? null : repeats;
    this.fence = fence;
    commitIntervalNanos = TimeUnit.MILLISECONDS.toNanos(commitIntervalMs);
    transactionTimeoutNanos = TimeUnit.MILLISECONDS.toNanos(transactionTimeoutMs);
    committed = context.longAccumulator("streamjoin.committed");
    skipped = context.longAccumulator("streamjoin.skipped");
    results = context.longAccumulator("streamjoin.results");
  }

  /** The slot of a task. */
  SlotId slotOf(int partition) {
    return onlySlot == null ? new SlotId(Integer.toString(partition), partition) : onlySlot;
  }

  /** As `transactional_id` in job/delivery/slots.py. */
  String transactionalId(SlotId slot) {
    return "streamjoin-" + name + "-" + slot.name();
  }

  /** All queries of a name share the key, as `marker_key` in job/delivery/markers.py. */
  String markerKey(SlotId slot) {
    return name + "/" + slot.name();
  }

  KafkaProducer<byte[], byte[]> newProducer(SlotId slot) {
    Map<String, Object> settings = new HashMap<>(client);
    settings.putAll(producer);
    settings.put(ProducerConfig.TRANSACTIONAL_ID_CONFIG, transactionalId(slot));
    settings.put(
        ProducerConfig.TRANSACTION_TIMEOUT_CONFIG,
        (int) TimeUnit.NANOSECONDS.toMillis(transactionTimeoutNanos));
    ByteArraySerializer bytes = new ByteArraySerializer();
    return new KafkaProducer<>(settings, bytes, bytes);
  }

  public long committed() {
    return committed.value();
  }

  public long skipped() {
    return skipped.value();
  }

  public long results() {
    return results.value();
  }
}
