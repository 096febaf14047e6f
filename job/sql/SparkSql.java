package streamjoin;

import java.util.ArrayList;
import java.util.List;
import org.apache.hadoop.conf.Configuration;
import org.apache.spark.SparkConf;
import org.apache.spark.sql.catalyst.analysis.Analyzer;
import org.apache.spark.sql.catalyst.analysis.FunctionRegistry;
import org.apache.spark.sql.catalyst.analysis.FunctionRegistry$;
import org.apache.spark.sql.catalyst.analysis.UnresolvedAlias;
import org.apache.spark.sql.catalyst.catalog.InMemoryCatalog;
import org.apache.spark.sql.catalyst.catalog.SessionCatalog;
import org.apache.spark.sql.catalyst.expressions.Alias;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.AttributeReference;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.Literal$;
import org.apache.spark.sql.catalyst.expressions.NamedExpression;
import org.apache.spark.sql.catalyst.expressions.NamedExpression$;
import org.apache.spark.sql.catalyst.expressions.TryEval;
import org.apache.spark.sql.catalyst.optimizer.Optimizer;
import org.apache.spark.sql.catalyst.optimizer.ReplaceExpressions$;
import org.apache.spark.sql.catalyst.parser.CatalystSqlParser$;
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
  private final SQLConf generating;
  private final Analyzer analyzer;
  private final Optimizer optimizer;

  /** Knows the functions of Spark, and those of the job, which a spec may not call. */
  private final Analyzer withOwnFunctions;

  SparkSql() {
    conf.setConfString("spark.sql.session.timeZone", "UTC");
    conf.setConfString("spark.sql.constraintPropagation.enabled", "false");
    conf.setConfString("spark.sql.ansi.enabled", "true");
    conf.setConfString("spark.sql.mapKeyDedupPolicy", "LAST_WIN");
    generating = conf.clone();
    // For a few rows, compiling code would take longer than it saves.
    conf.setConfString("spark.sql.codegen.factoryMode", "NO_CODEGEN");
    FunctionRegistry functions = FunctionRegistry$.MODULE$.builtin();
    analyzer = analyzer(functions);
    FunctionRegistry more = functions.clone();
    more.createOrReplaceTempFunction(InTimeZone.NAME, InTimeZone.builder(), "scala_udf");
    more.createOrReplaceTempFunction(
        "try_eval", arguments -> new TryEval(CollectionConverters.asJava(arguments).get(0)), "scala_udf");
    withOwnFunctions = analyzer(more);
    optimizer = new Optimizer(analyzer.catalogManager()) {};
  }

  private static Analyzer analyzer(FunctionRegistry functions) {
    InMemoryCatalog tables = new InMemoryCatalog(new SparkConf(false), new Configuration(false));
    return new Analyzer(new SessionCatalog(tables, functions));
  }

  /** Runs `body` with the settings of the job, also in a thread of a session with others. */
  <T> T withSettings(Function0<T> body) {
    return SQLConf$.MODULE$.withExistingConf(conf, body);
  }

  /** Runs `body` so that the projections it creates have generated code, if Spark can generate it. */
  <T> T withGeneratedCode(Function0<T> body) {
    return SQLConf$.MODULE$.withExistingConf(generating, body);
  }

  static Expression parsed(String text) {
    return CatalystSqlParser$.MODULE$.parseExpression(text);
  }

  static DataType type(String ddl) {
    return CatalystSqlParser$.MODULE$.parseDataType(ddl);
  }

  /** A stream with these columns. The optimizer computes nothing of it. */
  static LogicalPlan stream(StructType columns) {
    Seq<AttributeReference> output = DataTypeUtils.toAttributes(columns);
    return new StreamingRelationV2(
        Option.empty(), "kafka", null, CaseInsensitiveStringMap.empty(), output, Option.empty(),
        Option.empty(), Option.empty(), null);
  }

  /** `tree` as the only column of `stream`. */
  static LogicalPlan column(Expression tree, LogicalPlan stream) {
    return new Project(seq(alias(tree)), stream);
  }

  /** The plan after Spark's analysis. */
  LogicalPlan analyzed(LogicalPlan plan) {
    LogicalPlan analyzed = withOwnFunctions.execute(plan);
    withOwnFunctions.checkAnalysis(analyzed);
    return analyzed;
  }

  /** A step of selectExpr, after Spark's analysis. The job has written the expressions. */
  LogicalPlan projected(List<Expression> columns, LogicalPlan input) {
    Object[] named =
        columns.stream()
            .map(
                each ->
                    each instanceof NamedExpression
                        ? each
                        : new UnresolvedAlias(each, Option.empty()))
            .toArray();
    return analyzed(new Project(seq(named), input));
  }

  /** As the type that Scala's methods take. */
  static Seq<Expression> expressionsOf(List<? extends Expression> expressions) {
    return seq(expressions.toArray());
  }

  @SuppressWarnings("unchecked")
  static Seq<Expression> expressionsOf(Seq<?> expressions) {
    return (Seq<Expression>) expressions;
  }

  static Seq<Attribute> attributes(List<Attribute> columns) {
    return seq(columns.toArray());
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
