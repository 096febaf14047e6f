package streamjoin;

import java.io.Serializable;
import java.nio.ByteBuffer;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.Column;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.expressions.objects.Invoke;
import org.apache.spark.sql.classic.ExpressionUtils;
import org.apache.spark.sql.types.ObjectType;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * Decodes values in Confluent's wire format (a byte 0, the id of the schema as 4 bytes, the
 * payload) into rows of (reason, message, schema_id, columns). Either `reason` or `columns` is
 * null.
 */
public final class ValueDecoder implements Serializable {
  private static final int HEADER_BYTES = 5;
  private static final long UNSIGNED = 0xffffffffL;
  private static final UTF8String UNDECODABLE = UTF8String.fromString("undecodable_value");
  private static final UTF8String INCOMPATIBLE = UTF8String.fromString("incompatible_schema");
  private static final UTF8String NO_HEADER =
      UTF8String.fromString("does not begin with a byte 0 and the 4 of a schema's id");

  private final String lookup;
  private final StructType type;
  private final String unknown;
  private transient Map<Long, KnownSchema> schemas;

  /**
   * `lookup`: name of the lookup in SchemaLookups. `ddl`: type of the rows. `unknown`: a JSON
   * object from the schema ids that count as unknown to their messages.
   */
  public ValueDecoder(String lookup, String ddl, String unknown) {
    this.lookup = lookup;
    this.type = StructType.fromDDL(ddl);
    this.unknown = unknown;
  }

  public Column decoded(Column value) {
    return ExpressionUtils.column(
        new Invoke(
            Literal.fromObject(this, new ObjectType(ValueDecoder.class)),
            "decode",
            type,
            InternalRows.seq(List.of(ExpressionUtils.expression(value))),
            InternalRows.seq(List.of()),
            true,
            true,
            true));
  }

  /** Called by the expression in `decoded`. */
  public InternalRow decode(byte[] value) {
    if (value.length < HEADER_BYTES || value[0] != 0) {
      return row(UNDECODABLE, NO_HEADER, null, null);
    }
    long id = ByteBuffer.wrap(value).getInt(1) & UNSIGNED;
    KnownSchema schema = schema(id);
    if (schema.reader == null) {
      return row(schema.reason, schema.message, id, null);
    }
    try {
      return row(null, null, id, schema.reader.read(value, HEADER_BYTES));
    } catch (UnreadableException error) {
      return row(UNDECODABLE, message(id, error), id, null);
    } catch (IncompatibleException error) {
      return row(INCOMPATIBLE, message(id, error), id, null);
    }
  }

  private static InternalRow row(
      UTF8String reason, UTF8String message, Long schemaId, InternalRow columns) {
    return new GenericInternalRow(new Object[] {reason, message, schemaId, columns});
  }

  private static UTF8String message(long schemaId, RuntimeException error) {
    return UTF8String.fromString("schema " + schemaId + ": " + error.getMessage());
  }

  private KnownSchema schema(long id) {
    if (schemas == null) {
      schemas = KnownSchema.unknown(unknown);
    }
    KnownSchema schema = schemas.get(id);
    if (schema == null || schema.isOutdated()) {
      schema = KnownSchema.lookedUp(lookup, id, columns());
      schemas.put(id, schema);
    }
    return schema;
  }

  private StructType columns() {
    return (StructType) type.apply("columns").dataType();
  }
}
