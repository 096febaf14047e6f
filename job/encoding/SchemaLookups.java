package streamjoin;

import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;

/**
 * Looks up schemas on the driver. Executors send the id of a schema, so that only the driver needs
 * access to the registry, its login, and the rules that compare schemas.
 */
public final class SchemaLookups {
  private static final String ENDPOINT = "streamjoin-schemas";

  /** Concurrent lookups. A lookup can take until the deadline of the registry's client. */
  private static final int THREADS = 4;

  private static final Map<String, SchemaLookup> LOOKUPS = new ConcurrentHashMap<>();

  private SchemaLookups() {}

  /** Runs on the driver. `name`: unique among the lookups of all jobs in this JVM. */
  public static void install(String name, SchemaLookup lookup) {
    LOOKUPS.put(name, lookup);
    DriverEndpoint.install(ENDPOINT, THREADS, SchemaLookups::looked);
  }

  /** Runs on an executor. */
  static String answer(String name, long schemaId) {
    return DriverEndpoint.ask(ENDPOINT, name + " " + schemaId);
  }

  private static String looked(String question) {
    String[] parts = question.split(" ");
    return LOOKUPS.get(parts[0]).answer(Long.parseLong(parts[1]));
  }
}
