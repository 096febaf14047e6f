package streamjoin;

import java.util.regex.Pattern;
import org.apache.spark.sql.types.ArrayType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.MapType;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;

/**
 * Names of columns and fields as the schema of the state has them: Spark also makes an Avro schema of
 * it, in which a name has only letters, digits and underscores. Another character is written as its
 * code, {@code _x0020_}. job/checkpoint/state_names.py reads the names.
 */
final class StateNames {
  /** What must be written as codes: also the begin of a text that looks like one. */
  private static final Pattern UNFIT =
      Pattern.compile("^[0-9]|[^A-Za-z0-9_]|_(?=x[0-9a-f]{4}_)");

  private StateNames() {}

  static StructType encoded(StructType schema) {
    StructField[] fields = schema.fields().clone();
    for (int i = 0; i < fields.length; i++) {
      StructField field = fields[i];
      fields[i] =
          new StructField(
              encoded(field.name()), encoded(field.dataType()), field.nullable(), field.metadata());
    }
    return new StructType(fields);
  }

  private static DataType encoded(DataType type) {
    if (type instanceof StructType) {
      return encoded((StructType) type);
    }
    if (type instanceof ArrayType) {
      ArrayType array = (ArrayType) type;
      return new ArrayType(encoded(array.elementType()), array.containsNull());
    }
    if (type instanceof MapType) {
      MapType map = (MapType) type;
      return new MapType(
          encoded(map.keyType()), encoded(map.valueType()), map.valueContainsNull());
    }
    return type;
  }

  private static String encoded(String name) {
    return UNFIT.matcher(name).replaceAll(found -> codes(found.group()));
  }

  private static String codes(String text) {
    StringBuilder codes = new StringBuilder();
    text.chars().forEach(unit -> codes.append(String.format("_x%04x_", unit)));
    return codes.toString();
  }
}
