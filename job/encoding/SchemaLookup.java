package streamjoin;

/** Implemented in Python, on the driver: job/encoding/decoded_column.py. */
public interface SchemaLookup {
  /**
   * A JSON object with the input of ValueReader for a schema, or a reason: see
   * job/formats/decoder.py.
   */
  String answer(long schemaId);
}
