package streamjoin;

import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.spark.TaskContext;
import org.apache.spark.api.java.function.ForeachPartitionFunction;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.ForeachWriter;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.util.ArrayData;

/**
 * Writes results and dead letters in Kafka transactions: the rows of an interval in many small
 * transactions, the rows of a micro-batch in one. Spark calls the writer for each state partition.
 */
public final class TransactionWriter extends ForeachWriter<InternalRow> {
  private static final int TOPIC = 0;
  private static final int KEY = 1;
  private static final int VALUE = 2;
  private static final int HEADERS = 3;
  private static final int ID = 4;
  private static final int TIMESTAMP = 5;
  private static final int PARTITION = 6;

  private final DeliveryTarget target;
  private final String fingerprint;
  private transient TransactionSlot slot;

  private TransactionWriter(DeliveryTarget target, String fingerprint) {
    this.target = target;
    this.fingerprint = fingerprint;
  }

  public static TransactionWriter ofIntervals(DeliveryTarget target) {
    return new TransactionWriter(target, DeliveredParts.INTERVAL);
  }

  /** `records` as Spark's internal rows. */
  public static Dataset<InternalRow> records(Dataset<Row> records) {
    return records.as(InternalRows.encoder(records.schema()));
  }

  /** Discards the transaction slots of a run in this JVM. */
  public static void endRun(String run) {
    TransactionSlot.discardAll(run);
  }

  /** Writes a micro-batch. `fingerprint`: the fingerprint of its input offsets. */
  public static void write(
      Dataset<Row> records, DeliveryTarget target, long batchId, String fingerprint) {
    records(records)
        .foreachPartition(
            (ForeachPartitionFunction<InternalRow>)
                rows -> new TransactionWriter(target, fingerprint).write(rows, batchId));
  }

  private void write(Iterator<InternalRow> rows, long batchId) {
    try {
      open(TaskContext.getPartitionId(), batchId);
      while (rows.hasNext()) {
        process(rows.next());
      }
      close(null);
    } catch (Throwable failure) {
      close(failure);
      throw failure;
    }
  }

  @Override
  public boolean open(long partition, long batchId) {
    SlotId id = target.slotOf((int) partition);
    slot = TransactionSlot.begin(target, id, batchId, fingerprint);
    return true;
  }

  @Override
  public void process(InternalRow row) {
    String id = row.getUTF8String(ID).toString();
    if (!slot.isDelivered(id)) {
      slot.write(record(row), id);
    }
  }

  @Override
  public void close(Throwable failure) {
    if (slot == null) {
      return;
    }
    TransactionSlot.endTask();
    if (failure == null) {
      slot.end();
    } else {
      slot.discard();
    }
  }

  private static ProducerRecord<byte[], byte[]> record(InternalRow row) {
    return new ProducerRecord<>(
        row.getUTF8String(TOPIC).toString(),
        row.isNullAt(PARTITION) ? null : row.getInt(PARTITION),
        row.isNullAt(TIMESTAMP) ? null : row.getLong(TIMESTAMP),
        row.isNullAt(KEY) ? null : row.getBinary(KEY),
        row.isNullAt(VALUE) ? null : row.getBinary(VALUE),
        headers(row.getArray(HEADERS)));
  }

  private static List<Header> headers(ArrayData written) {
    List<Header> headers = new ArrayList<>(written.numElements());
    for (int i = 0; i < written.numElements(); i++) {
      InternalRow header = written.getStruct(i, 2);
      byte[] value = header.isNullAt(1) ? null : header.getBinary(1);
      headers.add(new RecordHeader(header.getUTF8String(0).toString(), value));
    }
    return headers;
  }
}
