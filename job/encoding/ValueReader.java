package streamjoin;

import com.fasterxml.jackson.databind.JsonNode;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.types.StructType;

/** Reads values of one schema. Is stateless: the tasks of an executor share it. */
interface ValueReader {
  /**
   * The columns of the value, whose payload begins at `start`. Throws UnreadableException or
   * IncompatibleException if the value cannot be read.
   */
  InternalRow read(byte[] value, int start);

  /**
   * `prepared`: from job/formats/avro.py or protobuf.py. Throws IncompatibleException if no value
   * can be read.
   */
  static ValueReader of(JsonNode prepared, StructType columns) {
    return prepared.has("files")
        ? ProtobufReader.of(prepared, columns)
        : AvroReader.of(prepared, columns);
  }
}
