package streamjoin;

/** Implemented in Python, on the driver: job/encoding/decoded_column.py. */
public interface SchemaLookup {
  /** What ValueReader needs for values of a schema, as JSON: see job/formats/lookup.py. */
  String answer(long schemaId);
}
