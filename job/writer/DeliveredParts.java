package streamjoin;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.DeserializationFeature;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Set;

/**
 * Decides, from the records of a slot in the commit topic, what a batch may write.
 *
 * <p>The rules, and the reasons for them, are in tests/unit/delivery/interval_protocol.py.
 */
public final class DeliveredParts {
  /** Fingerprint of an interval and of its marker. */
  public static final String INTERVAL = "interval";

  private static final ObjectMapper JSON =
      new ObjectMapper().enable(DeserializationFeature.FAIL_ON_TRAILING_TOKENS);
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

    /** "disagreement", "taken_over" or "unavailable". */
    public String kind() {
      return kind;
    }
  }

  /** A record that cannot be read. The message follows the place of the record. */
  private static final class ForeignRecordException extends Exception {
    ForeignRecordException(String message) {
      super(message);
    }
  }

  private final String topic;
  private final int partition;
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
  private long watermark = Long.MIN_VALUE;
  private int nextPart;

  /** Messages for the keys whose newest record is that of another program. */
  private final Map<String, String> foreign = new LinkedHashMap<>();

  /**
   * @param topic the commit topic
   * @param partition of the commit topic
   * @param markerKey key of the markers of the slot
   * @param fingerprint of the input offsets of a micro-batch; INTERVAL for an interval
   * @param since first batch of the checkpoint that is delivered exactly once
   * @param repeats batch id of the recorded interval that the run repeats; null: the run repeats none
   * @param fence fence number of the run; 0: there was no fence
   */
  public DeliveredParts(
      String topic,
      int partition,
      String markerKey,
      String queryId,
      long batchId,
      String fingerprint,
      long since,
      Long repeats,
      long fence) {
    this.topic = topic;
    this.partition = partition;
    this.markerKey = markerKey;
    partPrefix = markerKey + "/";
    fenceKey = fenceKey(markerKey);
    this.queryId = queryId;
    this.batchId = batchId;
    this.fingerprint = fingerprint;
    this.since = since;
    this.repeats = repeats;
    this.fence = fence;
  }

  /** Reads the next committed record of the slot's partition, in the order of the offsets. */
  public void read(long offset, byte[] recordKey, byte[] value) {
    String key = recordKey == null ? "" : new String(recordKey, StandardCharsets.UTF_8);
    if (!key.equals(markerKey) && !key.startsWith(partPrefix)) {
      return;
    }
    try {
      readOwn(key, value);
      foreign.remove(key);
    } catch (ForeignRecordException e) {
      foreign.put(key, placed(offset, key, e.getMessage()));
    }
  }

  private void readOwn(String key, byte[] value) throws ForeignRecordException {
    JsonNode fields = parsed(value);
    checkFormat(fields.path("format"));
    if (key.equals(markerKey)) {
      readMarker(fields, value);
    } else if (key.equals(fenceKey)) {
      readFence(fields, value);
    } else {
      readPart(key.substring(partPrefix.length()), fields, value);
    }
  }

  private void readMarker(JsonNode fields, byte[] value) throws ForeignRecordException {
    long batch = integer(fields, "batch_id", "a batch", value);
    String newFingerprint = text(fields, "fingerprint", "a fingerprint", value);
    newestQuery = text(fields, "query_id", "a query id", value);
    newestBatch = batch;
    newestFingerprint = newFingerprint;
    if (newestQuery.equals(queryId)) {
      oldestBatch = Math.min(oldestBatch, newestBatch);
    }
  }

  private void readFence(JsonNode fields, byte[] value) throws ForeignRecordException {
    long number = integer(fields, "number", "a fence number", value);
    if (text(fields, "query_id", "a query id", value).equals(queryId)) {
      newestFence = Math.max(newestFence, number);
    }
  }

  private void readPart(String number, JsonNode fields, byte[] value)
      throws ForeignRecordException {
    long interval = integer(fields, "batch_id", "a batch", value);
    if (!text(fields, "query_id", "a query id", value).equals(queryId)) {
      return;
    }
    JsonNode read = fields.path("ids");
    if (!read.isArray() || !number.matches("\\d{1,9}")) {
      throw without(read.isArray() ? "the number of a part in its key" : "ids", value);
    }
    newestParts = Math.max(newestParts, interval);
    if (interval == recovered()) {
      nextPart = Math.max(nextPart, Integer.parseInt(number) + 1);
      for (JsonNode id : read) {
        ids.add(id.textValue());
      }
      watermark = Math.max(watermark, integer(fields, "watermark_ms", "a watermark", value));
    }
  }

  private static long integer(JsonNode fields, String name, String noun, byte[] value)
      throws ForeignRecordException {
    JsonNode field = fields.path(name);
    if (!field.isIntegralNumber() || !field.canConvertToLong()) {
      throw without(noun, value);
    }
    return field.longValue();
  }

  private static String text(JsonNode fields, String name, String noun, byte[] value)
      throws ForeignRecordException {
    JsonNode field = fields.path(name);
    if (!field.isTextual()) {
      throw without(noun, value);
    }
    return field.textValue();
  }

  private static ForeignRecordException without(String noun, byte[] value) {
    return ofAnotherProgram(value.length + " bytes without " + noun);
  }

  /** As `_of_another_program` in job/delivery/markers.py. */
  private static ForeignRecordException ofAnotherProgram(String content) {
    return new ForeignRecordException(
        "is " + content + ". "
            + "Another program has written it, so the last delivered batch is unknown. Write the "
            + "previous record of the key again, if the topic still contains it; or start a new "
            + "query with another `name` and `checkpoint`");
  }

  /** As `_check_format` in job/delivery/markers.py. */
  private static void checkFormat(JsonNode format) throws ForeignRecordException {
    if (format.isIntegralNumber() && format.longValue() != FORMAT) {
      throw new ForeignRecordException(
          "has the format " + format + ", and this version of Streamjoin reads the format " + FORMAT
              + ". Start the query with the version that has written it");
    }
  }

  private String placed(long offset, String key, String message) {
    return String.format(
        "the newest record with the key %s, at offset %d of the commit topic %s, partition %d, %s",
        key, offset, topic, partition, message);
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
    for (String message : foreign.values()) {
      throw new WriteRefusedException("unavailable", message);
    }
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

  /** The last watermark, in milliseconds, by which the join had evicted these rows. */
  public long watermark() {
    return watermark;
  }

  /** Number of the next part, greater than those of the parts that were read. */
  public int nextPart() {
    return nextPart;
  }

  public static String partKey(String markerKey, int number) {
    return markerKey + "/" + number;
  }

  public static String fenceKey(String markerKey) {
    return markerKey + "/fence";
  }

  public static byte[] marker(String queryId, long batchId, String fingerprint) {
    return bytes(record(queryId, batchId).put("fingerprint", fingerprint));
  }

  public static byte[] part(
      String queryId, long batchId, long watermark, Iterable<String> ids) {
    ObjectNode part = record(queryId, batchId).put("watermark_ms", watermark);
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

  /** The fields of a record. None if it is no JSON. */
  private static JsonNode parsed(byte[] value) throws ForeignRecordException {
    if (value == null || value.length == 0) {
      throw ofAnotherProgram("a tombstone");
    }
    try {
      return JSON.readTree(value);
    } catch (IOException e) {
      return JSON.nullNode();
    }
  }

  private static WriteRefusedException disagreement(String message, Object... values) {
    return new WriteRefusedException("disagreement", String.format(message, values));
  }
}
