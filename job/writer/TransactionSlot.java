package streamjoin;

import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Deque;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.spark.TaskContext;

/**
 * The transactional producer of a slot, kept for the batches of a run.
 *
 * <pre>
 *   task of the partition   write  write      write ...                        end
 *   transactions            | rows, part 0 |  | rows, part 1 |   (no rows)     | rows, part 2, marker |
 *   thread of the slot                     commit           commit
 * </pre>
 *
 * <p>The rules are in tests/unit/delivery/interval_protocol.py. A micro-batch writes one transaction.
 */
final class TransactionSlot {
  private static final Map<String, TransactionSlot> SLOTS = new HashMap<>();

  /** The slot of each running task, by its attempt id. */
  private static final Map<Long, TransactionSlot> OF_TASKS = new ConcurrentHashMap<>();

  /** The last runs that have ended. A task of such a run may still begin. */
  private static final Deque<String> ENDED_RUNS = new ArrayDeque<>();

  private static final int ENDED_RUNS_MAX = 100;

  /** Kafka accepts records of 1 MB by default, and the ids compress well. */
  private static final int PART_CHARS_MAX = 250_000;

  /** Limit for the end of the open transaction, which hides all later records from readers. */
  private static final Duration CLOSE = Duration.ofSeconds(5);

  private final String run;
  private final SlotId slotId;
  private final Thread thread = new Thread(this::commitWhenDue);

  /** Target of the current batch, whose accumulators count for the task. */
  private DeliveryTarget target;

  private KafkaProducer<byte[], byte[]> producer;
  private SentRequests requests;

  /** Whether a request to commit may have been sent twice, so that one may arrive later. */
  private boolean isDoubtful;

  /** Ids of delivered rows that were not computed again yet. */
  private Set<String> delivered = Set.of();

  /** The last watermark by which the join had evicted delivered rows. */
  private long deliveredAt;

  /** The watermark by which the join evicts rows, in milliseconds. */
  private volatile long watermark;

  private long batchId;
  private String fingerprint;
  private boolean isSkipped;

  /** The last batch that has ended. Null while a batch is written, which no other task continues. */
  private Long endedBatch;

  private boolean isOpen;
  private long openedAt;
  private long dueAt = System.nanoTime();
  private final List<String> ids = new ArrayList<>();
  private int idChars;
  private int nextPart;

  private RuntimeException failure;
  private volatile boolean isDiscarded;

  private final Object ending = new Object();

  /** Whether the thread closes the producer. An interrupt would end the close too early. */
  private boolean isClosing;

  private TransactionSlot(DeliveryTarget target, SlotId slotId) {
    this.target = target;
    run = target.run;
    this.slotId = slotId;
    thread.setName(target.transactionalId(slotId));
    thread.setDaemon(true);
  }

  /** The slot for a batch: the slot of the previous batch if no other producer can have written. */
  static TransactionSlot begin(
      DeliveryTarget target, SlotId slotId, long batchId, String fingerprint) {
    String key = target.transactionalId(slotId);
    TransactionSlot slot;
    TransactionSlot before;
    synchronized (SLOTS) {
      if (ENDED_RUNS.contains(target.run)) {
        throw runHasEnded();
      }
      before = SLOTS.get(key);
      slot = before;
      if (before == null || !before.continuesWith(target, batchId)) {
        slot = new TransactionSlot(target, slotId);
        slot.thread.start();
        SLOTS.put(key, slot);
      }
    }
    if (before != null && before != slot) {
      before.discard();
    }
    slot.beginBatch(target, batchId, fingerprint);
    OF_TASKS.put(TaskContext.get().taskAttemptId(), slot);
    return slot;
  }

  /** The slot of the running task. Null: its rows are written without transactions. */
  static TransactionSlot ofTask() {
    return OF_TASKS.get(TaskContext.get().taskAttemptId());
  }

  /** Called when the writer of a task is closed. */
  static void endTask() {
    OF_TASKS.remove(TaskContext.get().taskAttemptId());
  }

  /**
   * Discards the slots of a run in this JVM, and waits until their transactions have ended. Tasks of
   * the run open no slot afterwards.
   */
  static void discardAll(String run) {
    List<TransactionSlot> slots = new ArrayList<>();
    synchronized (SLOTS) {
      ENDED_RUNS.addLast(run);
      if (ENDED_RUNS.size() > ENDED_RUNS_MAX) {
        ENDED_RUNS.removeFirst();
      }
      SLOTS.values().removeIf(slot -> slot.run.equals(run) && slots.add(slot));
    }
    slots.forEach(TransactionSlot::discard);
    try {
      for (TransactionSlot slot : slots) {
        slot.thread.join(CLOSE.toMillis());
      }
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
    }
  }

  private boolean continuesWith(DeliveryTarget other, long nextBatch) {
    // A task of another run may hold the lock of this slot for as long as no broker answers.
    return run.equals(other.run)
        // Another executor may have begun the batch, and fenced this producer.
        && TaskContext.get().attemptNumber() == 0
        && TaskContext.get().stageAttemptNumber() == 0
        && isFollowedBy(nextBatch);
  }

  private synchronized boolean isFollowedBy(long nextBatch) {
    return endedBatch != null && failure == null && !isDiscarded && endedBatch + 1 == nextBatch;
  }

  private synchronized void beginBatch(
      DeliveryTarget target, long batchId, String fingerprint) {
    checkNotFailed();
    boolean isKept = producer != null && !isDoubtful && !isSkipped;
    endedBatch = null;
    this.target = target;
    this.batchId = batchId;
    this.fingerprint = fingerprint;
    isSkipped = false;
    nextPart = 0;
    try {
      if (!isKept) {
        open();
      }
    } catch (RuntimeException e) {
      failure = failureOf(e);
      discard();
      throw failure;
    }
  }

  /** Fences all other producers of the slot, and reads what they have delivered. */
  private void open() {
    DeliveredParts parts;
    try (CommitPartition read =
        new CommitPartition(target.client, target.commitTopic, slotId.partition())) {
      parts = read.readCommitted(this::nothingDelivered);
      // A job that was replaced ends here, without fencing the one that replaced it.
      isSkipped = parts.isDecided();
      if (!isSkipped) {
        replaceProducer();
        read.readToTheEnd(parts);
        isSkipped = parts.isDelivered();
      }
    }
    // Also if the batch is delivered: its state is computed again.
    delivered = parts.ids();
    deliveredAt = parts.watermark();
    nextPart = parts.nextPart();
  }

  private DeliveredParts nothingDelivered() {
    return new DeliveredParts(
        target.commitTopic,
        slotId.partition(),
        target.markerKey(slotId),
        target.queryId,
        batchId,
        fingerprint,
        target.since,
        target.repeats,
        target.fence);
  }

  private void replaceProducer() {
    if (producer != null) {
      producer.close(Duration.ZERO);
    }
    // The run may have ended meanwhile: its successor must not be fenced.
    producer = InitializedProducer.create(target, slotId, this::checkNotFailed);
    requests = new SentRequests(producer.metrics());
    isDoubtful = false;
  }

  /** Whether an earlier attempt has delivered the row. */
  synchronized boolean isDelivered(String id) {
    return (!delivered.isEmpty() && delivered.remove(id)) || isSkipped;
  }

  /** What an earlier attempt has delivered, for the join. */
  synchronized DeliveredRows deliveredRows(Inputs inputs) {
    return delivered.isEmpty()
        ? DeliveredRows.NOTHING
        : new DeliveredRows(delivered, deliveredAt, inputs);
  }

  /** Called by the join before it evicts rows by this watermark. */
  void advanceTo(long watermark) {
    this.watermark = watermark;
  }

  synchronized void write(ProducerRecord<byte[], byte[]> row, String id) {
    checkNotFailed();
    try {
      boolean isFirst = begin();
      producer.send(row);
      if (row.topic().equals(target.outputTopic)) {
        target.results.add(1);
      }
      if (!isInterval()) {
        return;
      }
      addId(id);
      if (isFirst) {
        notifyAll();
      } else if (System.nanoTime() >= dueAt) {
        commit(); // While rows arrive without a pause, the thread may wait long for this lock.
      }
    } catch (RuntimeException e) {
      throw failed(e);
    }
  }

  /** Commits the last transaction of the batch, with its marker. */
  synchronized void end() {
    checkNotFailed();
    try {
      if (isSkipped) {
        target.skipped.add(1);
      } else {
        begin();
        byte[] marker = DeliveredParts.marker(target.queryId, batchId, fingerprint);
        sendPart();
        send(target.markerKey(slotId), marker);
        commit();
      }
      endedBatch = batchId;
    } catch (RuntimeException e) {
      throw failed(e);
    }
  }

  /** Ends the slot at once. Its thread aborts the open transaction. */
  void discard() {
    synchronized (ending) {
      isDiscarded = true;
      if (!isClosing) {
        thread.interrupt();
      }
    }
  }

  private void commitWhenDue() {
    try {
      awaitDiscard();
    } catch (InterruptedException e) {
      // The slot is discarded.
    } finally {
      closeProducer();
    }
  }

  private synchronized void awaitDiscard() throws InterruptedException {
    while (!isDiscarded) {
      long left = dueAt - System.nanoTime();
      if (!isOpen || !isInterval() || failure != null) {
        wait();
      } else if (left > 0) {
        TimeUnit.NANOSECONDS.timedWait(this, left);
      } else {
        try {
          commit();
        } catch (RuntimeException e) {
          failed(e); // The task throws it with its next row.
        }
      }
    }
  }

  private void closeProducer() {
    synchronized (ending) {
      isClosing = true;
      Thread.interrupted(); // After an interrupt, `close` would not wait for the producer's thread.
    }
    KafkaProducer<byte[], byte[]> last = producer;
    if (last != null) {
      last.close(CLOSE);
    }
  }

  /** Begins a transaction if none is open. Returns whether it began one. */
  private boolean begin() {
    if (isOpen) {
      return false;
    }
    if (isDoubtful) {
      // A new producer would fence a job that has taken over meanwhile.
      throw new DeliveryFailure(
          "unavailable", batchId, slotId, "a connection was closed during a commit", true);
    }
    producer.beginTransaction();
    openedAt = System.nanoTime();
    isOpen = true;
    return true;
  }

  private void addId(String id) {
    ids.add(id);
    idChars += id.length();
    if (idChars > PART_CHARS_MAX) {
      sendPart();
    }
  }

  private void sendPart() {
    if (ids.isEmpty()) {
      return;
    }
    String key = DeliveredParts.partKey(target.markerKey(slotId), nextPart++);
    send(key, DeliveredParts.part(target.queryId, batchId, watermark, ids));
    ids.clear();
    idChars = 0;
  }

  private void send(String key, byte[] value) {
    byte[] keyBytes = key.getBytes(StandardCharsets.UTF_8);
    producer.send(new ProducerRecord<>(target.commitTopic, slotId.partition(), keyBytes, value));
  }

  private void commit() {
    long begunAt = System.nanoTime();
    sendPart();
    requests.begin();
    producer.commitTransaction();
    // If the request was sent again on another connection, the first one may arrive later: it would
    // commit the beginning of the next transaction (KIP-890, which the client implements from 4.0
    // on).
    isDoubtful = requests.isSentTwice();
    isOpen = false;
    dueAt = begunAt + target.commitIntervalNanos;
    target.committed.add(1);
  }

  private boolean isInterval() {
    return fingerprint.equals(DeliveredParts.INTERVAL);
  }

  private void checkNotFailed() {
    if (failure != null) {
      throw failure;
    }
    if (isDiscarded) {
      throw runHasEnded();
    }
  }

  private static IllegalStateException runHasEnded() {
    return new IllegalStateException("the run of this task has ended");
  }

  private RuntimeException failed(RuntimeException error) {
    failure = failureOf(error);
    return failure;
  }

  private RuntimeException failureOf(RuntimeException error) {
    if (error instanceof DeliveredParts.WriteRefusedException) {
      DeliveredParts.WriteRefusedException refused = (DeliveredParts.WriteRefusedException) error;
      return new DeliveryFailure(refused.kind(), batchId, slotId, refused.getMessage(), false);
    }
    if (!(error instanceof KafkaException)) {
      return error;
    }
    boolean isOverdue =
        isOpen && System.nanoTime() - openedAt >= target.transactionTimeoutNanos;
    return DeliveryFailure.of((KafkaException) error, batchId, slotId, isOverdue);
  }
}
