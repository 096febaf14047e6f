package streamjoin;

import java.util.ArrayList;
import java.util.List;
import org.apache.hadoop.conf.Configuration;
import org.apache.spark.SparkConf;
import org.apache.spark.sql.catalyst.analysis.Analyzer;
import org.apache.spark.sql.catalyst.analysis.FunctionRegistry$;
import org.apache.spark.sql.catalyst.catalog.InMemoryCatalog;
import org.apache.spark.sql.catalyst.catalog.SessionCatalog;
import org.apache.spark.sql.catalyst.expressions.Alias;
import org.apache.spark.sql.catalyst.expressions.AttributeReference;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.Literal$;
import org.apache.spark.sql.catalyst.expressions.NamedExpression$;
import org.apache.spark.sql.catalyst.optimizer.Optimizer;
import org.apache.spark.sql.catalyst.optimizer.ReplaceExpressions$;
import org.apache.spark.sql.catalyst.parser.CatalystSqlParser$;
import org.apache.spark.sql.catalyst.plans.logical.Filter;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.catalyst.streaming.StreamingRelationV2;
import org.apache.spark.sql.catalyst.types.DataTypeUtils;
import org.apache.spark.sql.internal.SQLConf;
import org.apache.spark.sql.internal.SQLConf$;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DateType;
import org.apache.spark.sql.types.StringType;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import org.apache.spark.unsafe.types.UTF8String;
import scala.Function0;
import scala.Option;
import scala.collection.immutable.ArraySeq$;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;

/** Spark's parser, analyzer and optimizer, without a session, with the settings of the job. */
final class SparkSql {
  private final SQLConf conf = new SQLConf();
  private final Analyzer analyzer;
  private final Optimizer optimizer;

  SparkSql() {
    conf.setConfString("spark.sql.session.timeZone", "UTC");
    conf.setConfString("spark.sql.constraintPropagation.enabled", "false");
    InMemoryCatalog tables = new InMemoryCatalog(new SparkConf(false), new Configuration(false));
    analyzer = new Analyzer(new SessionCatalog(tables, FunctionRegistry$.MODULE$.builtin()));
    optimizer = new Optimizer(analyzer.catalogManager()) {};
  }

  /** Runs `body` with the settings of the job, also in a thread of a session with others. */
  <T> T withSettings(Function0<T> body) {
    return SQLConf$.MODULE$.withExistingConf(conf, body);
  }

  static Expression parsed(String text) {
    return CatalystSqlParser$.MODULE$.parseExpression(text);
  }

  /** A stream with these columns. The optimizer computes nothing of it. */
  static LogicalPlan stream(StructType columns) {
    Seq<AttributeReference> output = DataTypeUtils.toAttributes(columns);
    return new StreamingRelationV2(
        Option.empty(), "kafka", null, CaseInsensitiveStringMap.empty(), output, Option.empty(),
        Option.empty(), Option.empty(), null);
  }

  /** `tree` as the only column of `stream`, or as a filter of it, after Spark's analysis. */
  LogicalPlan analyzed(Expression tree, LogicalPlan stream, boolean isFilter) {
    LogicalPlan plan = isFilter ? new Filter(tree, stream) : new Project(seq(alias(tree)), stream);
    LogicalPlan analyzed = analyzer.execute(plan);
    analyzer.checkAnalysis(analyzed);
    return analyzed;
  }

  private static Alias alias(Expression tree) {
    return new Alias(
        tree, "x", NamedExpression$.MODULE$.newExprId(), seq(), Option.empty(), seq());
  }

  /** The expression of a plan of `analyzed`, or of its `replaced`. */
  static Expression expression(LogicalPlan plan) {
    Expression first = CollectionConverters.asJava(plan.expressions()).get(0);
    return first instanceof Alias alias ? alias.child() : first;
  }

  /** The expressions of all nodes of a plan. */
  static List<Expression> expressions(LogicalPlan plan) {
    List<Expression> found = new ArrayList<>(CollectionConverters.asJava(plan.expressions()));
    for (LogicalPlan child : CollectionConverters.asJava(plan.children())) {
      found.addAll(expressions(child));
    }
    return found;
  }

  /** The plan with the expressions that Spark runs in place of others. */
  static LogicalPlan replaced(LogicalPlan analyzed) {
    return ReplaceExpressions$.MODULE$.apply(analyzed);
  }

  /** Computes the constants as Spark does before it runs a query. Throws the error of one that fails. */
  LogicalPlan optimized(LogicalPlan analyzed) {
    return optimizer.execute(analyzed);
  }

  static List<Expression> children(Expression tree) {
    return CollectionConverters.asJava(tree.children());
  }

  /** Evaluates `tree` with an empty text, or the value 0, as its first operand. */
  static Object evaluated(Expression tree, List<Expression> operands) {
    DataType type = operands.get(0).dataType();
    Object value =
        type instanceof StringType ? UTF8String.EMPTY_UTF8 : type instanceof DateType ? (Object) 0 : 0L;
    Expression[] sample = operands.toArray(new Expression[0]);
    sample[0] = Literal$.MODULE$.create(value, type);
    return ((Expression) tree.withNewChildren(seq((Object[]) sample))).eval(null);
  }

  @SuppressWarnings("unchecked")
  private static <T> Seq<T> seq(Object... items) {
    return (Seq<T>) (Seq<?>) ArraySeq$.MODULE$.unsafeWrapArray(items);
  }
}
