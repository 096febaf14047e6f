package streamjoin;

import org.apache.spark.sql.Encoders;
import org.apache.spark.sql.catalyst.analysis.Analyzer;
import org.apache.spark.sql.catalyst.encoders.AgnosticEncoder;
import org.apache.spark.sql.catalyst.encoders.ExpressionEncoder;
import org.apache.spark.sql.catalyst.encoders.ExpressionEncoder$;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import scala.collection.immutable.Seq;

/**
 * Encoders.LONG, which Spark resolves once per JVM. Otherwise its analyzer would run in each task,
 * before the first row of an interval.
 */
final class NumberEncoder extends ExpressionEncoder<Long> {
  static final NumberEncoder INSTANCE =
      new NumberEncoder(ExpressionEncoder$.MODULE$.apply((AgnosticEncoder<Long>) Encoders.LONG()));

  private transient ExpressionEncoder<Long> resolved;

  private NumberEncoder(ExpressionEncoder<Long> spark) {
    super(spark.encoder(), spark.objSerializer(), spark.objDeserializer());
  }

  /** The arguments do not matter: there is one column, and the result contains its position. */
  @Override
  public synchronized ExpressionEncoder<Long> resolveAndBind(
      Seq<Attribute> attributes, Analyzer analyzer) {
    if (resolved == null) {
      resolved = super.resolveAndBind(attributes, analyzer);
    }
    return resolved;
  }
}
