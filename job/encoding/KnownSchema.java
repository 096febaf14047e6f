package streamjoin;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.util.Collections;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.Map;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * A schema of the registry, with the reader of its values or the reason why no value can be read.
 */
final class KnownSchema {
  /** Time until an unknown schema is looked up again: it may be registered later. */
  private static final long UNKNOWN_NANOS = 1_000_000_000L;
  private static final int SHARED_MAX = 1_000;
  private static final ObjectMapper JSON = new ObjectMapper();

  /** Schemas of this executor by lookup and id. The schema of an id never changes. */
  private static final Map<String, KnownSchema> SHARED =
      Collections.synchronizedMap(
          new LinkedHashMap<>(16, 0.75f, true) {
            @Override
            protected boolean removeEldestEntry(Map.Entry<String, KnownSchema> eldest) {
              return size() > SHARED_MAX;
            }
          });

  /** Null: no value can be read. */
  final ValueReader reader;
  /** Reason of the bad records. Null: there is a reader. */
  final UTF8String reason;
  final UTF8String message;
  private final boolean lasts;
  private final long knownAt = System.nanoTime();

  private KnownSchema(ValueReader reader) {
    this.reader = reader;
    this.reason = null;
    this.message = null;
    this.lasts = true;
  }

  private KnownSchema(String reason, String message, boolean lasts) {
    this.reader = null;
    this.reason = UTF8String.fromString(reason);
    this.message = UTF8String.fromString(message);
    this.lasts = lasts;
  }

  boolean isOutdated() {
    return !lasts && System.nanoTime() - knownAt > UNKNOWN_NANOS;
  }

  /** Schemas that stay unknown. `messages`: a JSON object from schema id to message. */
  static Map<Long, KnownSchema> unknown(String messages) {
    Map<Long, KnownSchema> schemas = new HashMap<>();
    for (Map.Entry<String, JsonNode> each : parsed(messages).properties()) {
      KnownSchema schema = new KnownSchema("unknown_schema", each.getValue().asText(), true);
      schemas.put(Long.valueOf(each.getKey()), schema);
    }
    return schemas;
  }

  /** Throws RegistryException if the schema is not known yet and the registry does not answer. */
  static KnownSchema lookedUp(String lookup, long id, StructType columns) {
    String name = lookup + " " + id;
    KnownSchema schema = SHARED.get(name);
    if (schema == null) {
      schema = of(parsed(SchemaLookups.answer(lookup, id)), id, columns);
      if (schema.lasts) {
        SHARED.put(name, schema);
      }
    }
    return schema;
  }

  private static KnownSchema of(JsonNode answer, long id, StructType columns) {
    if (answer.has("failure")) {
      String message = answer.get("failure").asText();
      throw new RegistryException(message, answer.get("refuses_login").asBoolean());
    }
    if (answer.has("reason")) {
      return new KnownSchema(
          answer.get("reason").asText(),
          answer.get("message").asText(),
          answer.get("lasts").asBoolean());
    }
    try {
      return new KnownSchema(ValueReader.of(answer, columns));
    } catch (IncompatibleException error) {
      return new KnownSchema(
          "incompatible_schema", "schema " + id + ": " + error.getMessage(), true);
    }
  }

  private static JsonNode parsed(String json) {
    try {
      return JSON.readTree(json);
    } catch (JsonProcessingException error) {
      throw new IllegalArgumentException(error);
    }
  }
}
