package streamjoin;

import java.util.List;
import org.apache.spark.sql.catalyst.expressions.Cast;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.expressions.TimeZoneAwareExpression;
import scala.Function1;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;

/**
 * The SQL function in_time_zone('Europe/Copenhagen', expression): the expression as in a session of
 * that time zone. Spark has analyzed the expression, with the zone of the session, before it calls
 * the function; no expression with the name of the function remains in the plan.
 *
 * <p>Spark's parser computes TIMESTAMP '…' before the analysis, so the expression contains casts in
 * place of such literals (SpecText.withCasts).
 */
public final class InTimeZone {
  public static final String NAME = "in_time_zone";

  private InTimeZone() {}

  /** The function, for a registry of Spark. */
  public static Function1<Seq<Expression>, Expression> builder() {
    return arguments -> {
      List<Expression> each = CollectionConverters.asJava(arguments);
      return in(((Literal) each.get(0)).value().toString(), each.get(1));
    };
  }

  private static Expression in(String zone, Expression tree) {
    Expression inner = (Expression) tree.mapChildren(child -> in(zone, (Expression) child));
    return inner instanceof TimeZoneAwareExpression aware
        ? (Expression) aware.withTimeZone(zone)
        : inner;
  }

  /** Whether the value of an analyzed expression can depend on the time zone. */
  static boolean isNeeded(Expression tree) {
    boolean isAware =
        tree instanceof Cast cast ? cast.needsTimeZone() : tree instanceof TimeZoneAwareExpression;
    return isAware || SparkSql.children(tree).stream().anyMatch(InTimeZone::isNeeded);
  }

  /** `text` in the time zone, a valid id. */
  static String sql(String zone, String text) {
    return NAME + "('" + zone + "', " + text + ")";
  }
}
