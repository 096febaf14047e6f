package streamjoin;

import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.function.Supplier;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.InterruptException;
import org.apache.kafka.common.errors.TimeoutException;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/** Reads the committed records of a partition of the commit topic, once to its end. */
final class CommitPartition implements AutoCloseable {
  private static final Duration READ = Duration.ofSeconds(30);
  private static final Duration POLL = Duration.ofMillis(500);

  /** Offsets before the end that are read first. */
  private static final long TAIL = 1_000;

  /** Factor of the next tail, if more records are needed. */
  private static final long TAIL_GROWTH = 30;

  private final TopicPartition partition;
  private final Map<String, Object> client;
  private final KafkaConsumer<byte[], byte[]> consumer;

  CommitPartition(Map<String, Object> client, String topic, int number) {
    this.client = client;
    partition = new TopicPartition(topic, number);
    Map<String, Object> settings = new HashMap<>(client);
    settings.put(ConsumerConfig.ISOLATION_LEVEL_CONFIG, "read_committed");
    settings.put(ConsumerConfig.ENABLE_AUTO_COMMIT_CONFIG, false);
    settings.put(ConsumerConfig.DEFAULT_API_TIMEOUT_MS_CONFIG, (int) READ.toMillis());
    settings.put(ConsumerConfig.FETCH_MAX_WAIT_MS_CONFIG, 10);
    // For a position before the first offset of the partition.
    settings.put(ConsumerConfig.AUTO_OFFSET_RESET_CONFIG, "earliest");
    ByteArrayDeserializer bytes = new ByteArrayDeserializer();
    consumer = new KafkaConsumer<>(settings, bytes, bytes);
    consumer.assign(List.of(partition));
  }

  /**
   * The parts up to the first open transaction. May miss records that are being committed. Most
   * records of the partition are old ones that Kafka has not compacted yet, so a tail is read first.
   */
  DeliveredParts readCommitted(Supplier<DeliveredParts> nothing) {
    long end = consumer.endOffsets(List.of(partition)).get(partition);
    long tail = TAIL;
    while (true) {
      DeliveredParts parts = nothing.get();
      consumer.seek(partition, Math.max(0, end - tail));
      readUntil(end, parts);
      if (tail >= end || parts.isComplete()) {
        return parts;
      }
      tail *= TAIL_GROWTH;
    }
  }

  /**
   * Reads all further records up to the end of the partition at the time of the call. Throws
   * TimeoutException if an open transaction of any producer hides some of them.
   */
  void readToTheEnd(DeliveredParts parts) {
    readUntil(end(), parts);
  }

  private void readUntil(long end, DeliveredParts parts) {
    long deadline = System.nanoTime() + READ.toNanos();
    while (consumer.position(partition) < end) {
      for (ConsumerRecord<byte[], byte[]> record : consumer.poll(POLL)) {
        parts.read(record.offset(), record.key(), record.value());
      }
      if (System.nanoTime() > deadline) {
        throw new TimeoutException(
            String.format(
                "offsets %d to %d of the commit topic, partition %s, could not be read within %d s: "
                    + "a transaction is open there, or the broker is slow",
                consumer.position(partition), end, partition, READ.toSeconds()));
      }
    }
  }

  /** Offset after the newest record, committed or not. For a read_committed consumer it is earlier. */
  private long end() {
    try (Admin admin = Admin.create(client)) {
      return admin
          .listOffsets(Map.of(partition, OffsetSpec.latest()))
          .partitionResult(partition)
          .get(READ.toSeconds(), TimeUnit.SECONDS)
          .offset();
    } catch (ExecutionException e) {
      throw e.getCause() instanceof KafkaException
          ? (KafkaException) e.getCause()
          : new KafkaException(e.getCause());
    } catch (java.util.concurrent.TimeoutException e) {
      throw new TimeoutException(
          "the end offset of " + partition + ", the commit topic, is unknown: no broker answers", e);
    } catch (InterruptedException e) {
      throw new InterruptException(e);
    }
  }

  @Override
  public void close() {
    consumer.close(Duration.ZERO);
  }
}
