package streamjoin;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.util.HashSet;
import java.util.Set;

/**
 * Decides, from the records of a state partition in the commit topic, what a batch may write.
 *
 * <p>The rules, and the reasons for them, are in job/delivery/interval_protocol.py.
 */
public final class DeliveredParts {
  /** Fingerprint of an interval and of its marker. */
  public static final String INTERVAL = "interval";

  private static final ObjectMapper JSON = new ObjectMapper();
  private static final int FORMAT = 1;
  private static final long NO_BATCH = -1;
  private static final String START_AGAIN =
      "set another folder in `checkpoint` and start with --new-query (rows now waiting in state are "
          + "then not joined, and results may be delivered again)";
  private static final String USE_OLDER_COPY =
      "restore the newest copy; or run `streamjoin checkpoint backup SPEC FOLDER`, then "
          + "`streamjoin checkpoint restore SPEC FOLDER --results-again`, to deliver the later "
          + "results again";

  /** The run may not write to the slot. */
  public static final class WriteRefusedException extends RuntimeException {
    private final String kind;

    WriteRefusedException(String kind, String message) {
      super(message);
      this.kind = kind;
    }

    /** "disagreement" or "taken_over". */
    public String kind() {
      return kind;
    }
  }

  private final String markerKey;
  private final String partPrefix;
  private final String fenceKey;
  private final String queryId;
  private final long batchId;
  private final String fingerprint;
  private final long since;
  private final Long repeats;
  private final long fence;

  private String newestQuery;
  private long newestBatch = NO_BATCH;
  private String newestFingerprint;

  /** The oldest batch of this query that has a marker among the records. */
  private long oldestBatch = Long.MAX_VALUE;

  /** The newest interval of this query that has a part. */
  private long newestParts = NO_BATCH;

  private long newestFence;

  private final Set<String> ids = new HashSet<>();
  private int nextPart;

  /**
   * @param slot number of the state partition
   * @param fingerprint of the input offsets of a micro-batch; INTERVAL for an interval
   * @param since first batch of the checkpoint that is delivered exactly once
   * @param repeats batch id of the recorded interval that the run repeats; null: the run repeats none
   * @param fence fence number of the run; 0: there was no fence
   */
  public DeliveredParts(
      String name,
      int slot,
      String queryId,
      long batchId,
      String fingerprint,
      long since,
      Long repeats,
      long fence) {
    markerKey = markerKey(name, slot);
    partPrefix = markerKey + "/";
    fenceKey = fenceKey(name, slot);
    this.queryId = queryId;
    this.batchId = batchId;
    this.fingerprint = fingerprint;
    this.since = since;
    this.repeats = repeats;
    this.fence = fence;
  }

  /** Reads the next committed record of the slot's partition, in the order of the offsets. */
  public void read(byte[] recordKey, byte[] value) {
    String key = recordKey == null ? "" : new String(recordKey, StandardCharsets.UTF_8);
    if (key.equals(markerKey)) {
      JsonNode marker = parsed(value);
      newestQuery = marker.get("query_id").textValue();
      newestBatch = marker.get("batch_id").longValue();
      newestFingerprint = marker.get("fingerprint").textValue();
      if (newestQuery.equals(queryId)) {
        oldestBatch = Math.min(oldestBatch, newestBatch);
      }
    } else if (key.equals(fenceKey)) {
      readFence(parsed(value));
    } else if (key.startsWith(partPrefix)) {
      readPart(Integer.parseInt(key.substring(partPrefix.length())), parsed(value));
    }
  }

  private void readFence(JsonNode read) {
    if (read.get("query_id").textValue().equals(queryId)) {
      newestFence = Math.max(newestFence, read.get("number").longValue());
    }
  }

  private void readPart(int number, JsonNode part) {
    if (!part.get("query_id").textValue().equals(queryId)) {
      return;
    }
    long interval = part.get("batch_id").longValue();
    newestParts = Math.max(newestParts, interval);
    if (interval == recovered()) {
      nextPart = Math.max(nextPart, number + 1);
      for (JsonNode id : part.get("ids")) {
        ids.add(id.textValue());
      }
    }
  }

  /**
   * Whether no earlier record is needed: the marker of an earlier batch was read, and all rows that
   * the run may compute again were written after that marker.
   */
  public boolean isComplete() {
    return oldestBatch < Math.min(recovered(), batchId);
  }

  /**
   * Whether the records that are read before other producers are fenced show that the batch is
   * delivered. Throws WriteRefusedException if no further record could allow the run to write.
   */
  public boolean isDecided() {
    checkRun();
    return newestQuery != null && newestBatch >= batchId && isDelivered();
  }

  /**
   * Whether the micro-batch is delivered, so that its rows are dropped. Called after other producers
   * were fenced and all records were read. Throws WriteRefusedException if the slot may not be written.
   */
  public boolean isDelivered() {
    checkRun();
    checkIntervals();
    if (newestBatch > batchId) {
      throw disagreement(
          "the next batch of the checkpoint is %d, but batch %d was already delivered: the "
              + "checkpoint is an older copy. To continue, %s",
          batchId, newestBatch, USE_OLDER_COPY);
    }
    if (newestQuery != null && newestBatch == batchId) {
      if (INTERVAL.equals(newestFingerprint)) {
        return false;
      }
      if (!newestFingerprint.equals(fingerprint)) {
        throw disagreement(
            "batch %d was delivered from other input offsets than those in the checkpoint: the "
                + "checkpoint was changed, or is an older copy. To continue, %s",
            batchId, USE_OLDER_COPY);
      }
      return true;
    }
    if (batchId > since && newestBatch != batchId - 1) {
      throw disagreement(
          "batch %d was delivered, but its marker is missing (the commit topic %s): the topic may "
              + "have been deleted or renamed. Restore it. To continue without it, run with "
              + "`delivery: at_least_once` until a batch has ended (its results may be delivered "
              + "twice), then with exactly_once again; or %s",
          batchId - 1,
          newestBatch == NO_BATCH ? "has no marker" : "ends with batch " + newestBatch,
          START_AGAIN);
    }
    return false;
  }

  private void checkRun() {
    if (newestQuery != null && !newestQuery.equals(queryId)) {
      throw new WriteRefusedException(
          "taken_over",
          "query " + newestQuery + " has written the newest marker, and this is query " + queryId);
    }
    if (newestFence > fence) {
      throw disagreement(
          "the commit topic has fence %d of the query, and this run began with fence %d: another "
              + "job runs the query, or the checkpoint is an older copy. End the other job. If there "
              + "is none, %s",
          newestFence, fence, USE_OLDER_COPY);
    }
  }

  private void checkIntervals() {
    boolean isInterval = INTERVAL.equals(newestFingerprint);
    long newest = isInterval ? Math.max(newestParts, newestBatch) : newestParts;
    if (newest > newestInterval()) {
      throw disagreement(
          "the next batch of the checkpoint is %d, but results of interval %d were already "
              + "delivered: the checkpoint is an older copy. To continue, %s",
          batchId, newest, USE_OLDER_COPY);
    }
  }

  /** The newest interval that can have begun, according to the checkpoint. */
  private long newestInterval() {
    return INTERVAL.equals(fingerprint) || repeats != null ? recovered() : batchId - 1;
  }

  /** The interval whose parts contain rows that the run computes again. */
  private long recovered() {
    return repeats == null ? batchId : repeats;
  }

  /** Ids of delivered rows. The run may compute these rows again, in this batch or a later one. */
  public Set<String> ids() {
    return ids;
  }

  /** Number of the next part, greater than those of the parts that were read. */
  public int nextPart() {
    return nextPart;
  }

  public static String markerKey(String name, int slot) {
    return name + "/" + slot;
  }

  public static String partKey(String name, int slot, int number) {
    return markerKey(name, slot) + "/" + number;
  }

  public static String fenceKey(String name, int slot) {
    return markerKey(name, slot) + "/fence";
  }

  public static byte[] marker(String queryId, long batchId, String fingerprint) {
    return bytes(record(queryId, batchId).put("fingerprint", fingerprint));
  }

  public static byte[] part(String queryId, long batchId, Iterable<String> ids) {
    ObjectNode part = record(queryId, batchId);
    ArrayNode list = part.putArray("ids");
    ids.forEach(list::add);
    return bytes(part);
  }

  private static ObjectNode record(String queryId, long batchId) {
    return JSON.createObjectNode()
        .put("format", FORMAT)
        .put("query_id", queryId)
        .put("batch_id", batchId);
  }

  private static byte[] bytes(JsonNode record) {
    try {
      return JSON.writeValueAsBytes(record);
    } catch (JsonProcessingException e) {
      throw new UncheckedIOException(e);
    }
  }

  private static JsonNode parsed(byte[] value) {
    try {
      return JSON.readTree(value);
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
  }

  private static WriteRefusedException disagreement(String message, Object... values) {
    return new WriteRefusedException("disagreement", String.format(message, values));
  }
}
