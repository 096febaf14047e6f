package streamjoin;

import java.time.Duration;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.locks.ReentrantLock;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.common.errors.InterruptException;

/**
 * Creates the producers that fence all others of their transactional id, one at a time.
 *
 * <p>A task may still wait for its producer when its run has ended and the next run creates another
 * one. The later request fences the producer of the earlier one, so the request of the ended run
 * must not be the later one.
 */
final class InitializedProducer {
  /** Locks by transactional id. */
  private static final Map<String, ReentrantLock> LOCKS = new ConcurrentHashMap<>();

  /** Limit for the answer to a request after an interrupt. The request may be sent three times. */
  private static final Duration ANSWER = Duration.ofSeconds(15);

  private InitializedProducer() {}

  /** `check`: throws if the producer must not fence others any more. */
  static KafkaProducer<byte[], byte[]> create(
      DeliveryTarget target, SlotId slot, Runnable check) {
    ReentrantLock lock =
        LOCKS.computeIfAbsent(target.transactionalId(slot), id -> new ReentrantLock());
    try {
      lock.lockInterruptibly();
    } catch (InterruptedException e) {
      throw new InterruptException(e);
    }
    try {
      check.run();
      KafkaProducer<byte[], byte[]> producer = target.newProducer(slot);
      try {
        producer.initTransactions();
      } catch (RuntimeException e) {
        closeAnswered(producer);
        throw e;
      }
      return producer;
    } finally {
      lock.unlock();
    }
  }

  /**
   * Closes the producer. After an interrupt its request may be on its way, and is answered first:
   * later it would fence another producer.
   */
  private static void closeAnswered(KafkaProducer<byte[], byte[]> producer) {
    boolean isInterrupted = Thread.interrupted(); // Otherwise `close` would not wait.
    try {
      producer.close(isInterrupted ? ANSWER : Duration.ZERO);
    } finally {
      if (isInterrupted) {
        Thread.currentThread().interrupt();
      }
    }
  }
}
