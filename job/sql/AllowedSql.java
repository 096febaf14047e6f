package streamjoin;

import java.util.Arrays;
import java.util.HashSet;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.spark.sql.catalyst.FunctionIdentifier;
import org.apache.spark.sql.catalyst.analysis.FunctionRegistry;
import org.apache.spark.sql.catalyst.analysis.FunctionRegistry$;
import org.apache.spark.sql.catalyst.analysis.UnresolvedFunction;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.ExpressionInfo;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.expressions.PlanExpression;
import org.apache.spark.sql.catalyst.expressions.objects.Invoke;
import org.apache.spark.sql.catalyst.expressions.objects.StaticInvoke;
import org.apache.spark.sql.catalyst.trees.Origin;
import org.apache.spark.sql.types.ArrayType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.MapType;
import org.apache.spark.sql.types.StringType;
import org.apache.spark.sql.types.StringType$;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.unsafe.types.UTF8String;
import scala.jdk.javaapi.CollectionConverters;

/**
 * The parts of Spark SQL that a spec may use. An expression of a spec runs in the job, so it must be
 * deterministic, and reach no file, no other host and no class of the JVM.
 */
final class AllowedSql {
  /** Why a spec may not use a part of Spark SQL. */
  static final class Refusal extends RuntimeException {
    final String reason;
    final String what;

    /** `what`: a function, or the SQL of an expression. */
    Refusal(String reason, String what) {
      super(reason + ": " + what);
      this.reason = reason;
      this.what = what;
    }
  }

  private static final FunctionRegistry FUNCTIONS = FunctionRegistry$.MODULE$.builtin();
  private static final String PACKAGE = "org.apache.spark.sql.catalyst.expressions.";

  /** Reasons by the group of a function in Spark's documentation. */
  private static final Map<String, String> REFUSED_GROUPS =
      Map.of(
          "agg_funcs", "AGGREGATE",
          "window_funcs", "WINDOW",
          "generator_funcs", "GENERATOR",
          "sketch_funcs", "SKETCH",
          "avro_funcs", "OTHER_FORMAT",
          "protobuf_funcs", "OTHER_FORMAT",
          "xml_funcs", "OTHER_FORMAT",
          "st_funcs", "TYPE",
          "variant_funcs", "TYPE");

  private static final Map<String, List<String>> REFUSED_NAMES =
      Map.of(
          "NOT_DETERMINISTIC",
          List.of(
              "aes_encrypt", "monotonically_increasing_id", "rand", "randn", "random", "randstr",
              "shuffle", "spark_partition_id", "uniform", "uuid"),
          "CLOCK",
          List.of(
              "curdate", "current_date", "current_time", "current_timestamp", "localtime",
              "localtimestamp", "now"),
          "SESSION",
          List.of(
              "current_catalog", "current_database", "current_path", "current_schema",
              "current_timezone", "current_user", "session_user", "user", "version"),
          "REFLECTION", List.of("java_method", "reflect", "try_reflect"),
          "FILE", List.of("input_file_block_length", "input_file_block_start", "input_file_name"),
          "GENERATOR", List.of("json_tuple"),
          "AGGREGATE", List.of("vector_avg", "vector_sum"),
          "WINDOW", List.of("session_window", "window", "window_time"),
          "TYPE",
          List.of(
              "collate", "collation", "make_time", "make_timestamp_ntz", "time", "time_bucket",
              "time_diff", "time_from_micros", "time_from_millis", "time_from_seconds", "time_to_micros",
              "time_to_millis", "time_to_seconds", "time_trunc", "to_time", "to_timestamp_ntz",
              "try_make_timestamp_ntz", "try_to_time"));

  /** Expressions that Spark creates and no function is named after. */
  private static final Set<String> OTHERS =
      Set.of(
          "Alias", "AttributeReference", "BinaryPad", "BinaryPredicate", "CheckOverflow",
          "CommonExpressionDef", "CommonExpressionRef", "Contains", "Ceil", "DateAddInterval",
          "DateAddYMInterval", "DatetimeSub", "DivideDTInterval", "DivideInterval",
          "DivideYMInterval", "EndsWith", "ExtractANSIIntervalDays", "ExtractANSIIntervalHours",
          "ExtractANSIIntervalMinutes", "ExtractANSIIntervalMonths",
          "ExtractANSIIntervalSeconds", "ExtractANSIIntervalYears", "Floor", "GetArrayItem",
          "GetArrayStructFields", "GetMapValue", "GetStructField", "GetTimestamp", "Hour",
          "KnownNotContainsNull", "LambdaFunction", "LikeAll", "LikeAny", "Literal",
          "MakeTimestamp", "MakeTimestampFromDateTime", "Mask", "Minute", "MultiplyDTInterval",
          "MultiplyInterval", "MultiplyYMInterval", "NamedLambdaVariable", "NotLikeAll",
          "NotLikeAny", "NullIfResult", "RaiseError", "RoundCeil", "RoundFloor", "Second",
          "SecondWithFraction", "StartsWith", "StringDecode", "StringInstr",
          "StringInstrWithOccurrence", "StringLPad", "StringRPad", "StringSplitSQL",
          "SubtractDates", "SubtractTimestamps", "TimestampAddInterval",
          "TimestampAddYMInterval", "ToCharacter", "TryEval", "TryMakeTimestamp",
          "TryMakeTimestampFromDateTime", "With");

  /** Static methods that Spark calls in place of functions. */
  private static final Set<String> CALLS =
      Set.of(
          "org.apache.spark.sql.catalyst.expressions.Base32.encode",
          "org.apache.spark.sql.catalyst.expressions.Base64.encode",
          "org.apache.spark.sql.catalyst.expressions.BitmapExpressionUtils.bitmapBitPosition",
          "org.apache.spark.sql.catalyst.expressions.BitmapExpressionUtils.bitmapBucketNumber",
          "org.apache.spark.sql.catalyst.expressions.BitmapExpressionUtils.bitmapCount",
          "org.apache.spark.sql.catalyst.expressions.Encode.encode",
          "org.apache.spark.sql.catalyst.expressions.ExpressionImplUtils.aesDecrypt",
          "org.apache.spark.sql.catalyst.expressions.ExpressionImplUtils.getSentences",
          "org.apache.spark.sql.catalyst.expressions.ExpressionImplUtils.hmac",
          "org.apache.spark.sql.catalyst.expressions.ExpressionImplUtils.isLuhnNumber",
          "org.apache.spark.sql.catalyst.expressions.ExpressionImplUtils.jaroWinklerSimilarity",
          "org.apache.spark.sql.catalyst.expressions.ExpressionImplUtils.quote",
          "org.apache.spark.sql.catalyst.expressions.ExpressionImplUtils.tryValidateUTF8String",
          "org.apache.spark.sql.catalyst.expressions.ExpressionImplUtils.validateUTF8String",
          "org.apache.spark.sql.catalyst.expressions.StringDecode.decode",
          "org.apache.spark.sql.catalyst.expressions.UnBase32.decode",
          "org.apache.spark.sql.catalyst.expressions.UrlCodec.decode",
          "org.apache.spark.sql.catalyst.expressions.UrlCodec.encode",
          "org.apache.spark.sql.catalyst.expressions.VectorFunctionImplUtils.vectorCosineSimilarity",
          "org.apache.spark.sql.catalyst.expressions.VectorFunctionImplUtils.vectorInnerProduct",
          "org.apache.spark.sql.catalyst.expressions.VectorFunctionImplUtils.vectorL2Distance",
          "org.apache.spark.sql.catalyst.expressions.VectorFunctionImplUtils.vectorNorm",
          "org.apache.spark.sql.catalyst.expressions.VectorFunctionImplUtils.vectorNormalize",
          "org.apache.spark.sql.catalyst.expressions.json.JsonExpressionUtils.jsonObjectKeys",
          "org.apache.spark.sql.catalyst.expressions.json.JsonExpressionUtils.lengthOfJsonArray",
          "org.apache.spark.sql.catalyst.util.DateTimeUtils.makeTimestamp",
          "org.apache.spark.unsafe.array.ByteArrayMethods.contains",
          "org.apache.spark.unsafe.array.ByteArrayMethods.endsWith",
          "org.apache.spark.unsafe.array.ByteArrayMethods.startsWith",
          "org.apache.spark.unsafe.types.ByteArray.lpad",
          "org.apache.spark.unsafe.types.ByteArray.rpad",
          "org.apache.spark.sql.catalyst.expressions.csv.SchemaOfCsvEvaluator.evaluate",
          "org.apache.spark.sql.catalyst.expressions.json.SchemaOfJsonEvaluator.evaluate",
          "org.apache.spark.sql.catalyst.expressions.json.StructsToJsonEvaluator.evaluate",
          "org.apache.spark.sql.catalyst.expressions.url.ParseUrlEvaluator.evaluate",
          "org.apache.spark.unsafe.types.UTF8String.isValid",
          "org.apache.spark.unsafe.types.UTF8String.makeValid");

  /** Nodes of a parsed expression that the analysis replaces by nothing else than their meaning. */
  private static final Set<String> UNRESOLVED =
      Set.of("UnresolvedAttribute", "UnresolvedExtractValue");

  private static final Pattern TYPED_LITERAL =
      Pattern.compile("(?:date|timestamp\\w*)\\s*([^\\s\\w].*|r['\"].*)",
          Pattern.CASE_INSENSITIVE | Pattern.DOTALL);
  private static final Pattern CLOCK_VALUE = Pattern.compile("(now|today|tomorrow|yesterday)\\b");

  private static Set<String> classes;

  /** Spark's functions by name. */
  static Map<String, ExpressionInfo> functions() {
    Map<String, ExpressionInfo> found = new TreeMap<>();
    for (FunctionIdentifier each : CollectionConverters.asJava(FUNCTIONS.listFunction())) {
      found.put(each.funcName(), FUNCTIONS.lookupFunction(each).get());
    }
    return found;
  }

  /** The reason why a spec may not call a function; null if it may. */
  static String refusal(String name) {
    var info = FUNCTIONS.lookupFunction(new FunctionIdentifier(name));
    if (info.isEmpty()) {
      return "UNKNOWN";
    }
    for (Map.Entry<String, List<String>> each : REFUSED_NAMES.entrySet()) {
      if (each.getValue().contains(name)) {
        return each.getKey();
      }
    }
    return REFUSED_GROUPS.get(info.get().getGroup());
  }

  /**
   * Throws Refusal for a part of a parsed expression that the analysis must not see. `own`: the
   * function of the job that the expression may call; null if it is the text of a spec.
   */
  static void checkParsed(Expression tree, String own) {
    checkParsed(tree, own, 0);
  }

  /** The analysis of a deep tree takes minutes. */
  private static void checkParsed(Expression tree, String own, int depth) {
    if (depth > SpecText.DEPTH_MAX) {
      throw new Refusal("DEPTH", String.valueOf(SpecText.DEPTH_MAX));
    }
    if (tree instanceof PlanExpression) {
      throw new Refusal("SUBQUERY", "");
    }
    if (tree instanceof UnresolvedFunction function) {
      checkCall(function, own);
    } else if (isUnresolved(tree) && !UNRESOLVED.contains(tree.getClass().getSimpleName())) {
      throw new Refusal("EXPRESSION", textOf(tree));
    }
    if (tree instanceof Literal && isOfTheClock(textOf(tree))) {
      throw new Refusal("CLOCK", textOf(tree));
    }
    SparkSql.children(tree).forEach(child -> checkParsed(child, own, depth + 1));
  }

  /** Whether the analysis replaces `tree` by something else. */
  private static boolean isUnresolved(Expression tree) {
    return tree.getClass().getName().startsWith("org.apache.spark.sql.catalyst.analysis.");
  }

  /** The text that `tree` was parsed from. */
  private static String textOf(Expression tree) {
    Origin origin = tree.origin();
    if (origin.sqlText().isEmpty() || origin.startIndex().isEmpty()) {
      return tree.sql();
    }
    String text = origin.sqlText().get();
    int start = text.offsetByCodePoints(0, (Integer) origin.startIndex().get());
    return text.substring(start, text.offsetByCodePoints(0, (Integer) origin.stopIndex().get() + 1));
  }

  /** Whether `literal` is such as timestamp'now', which the parser replaces by the current time. */
  private static boolean isOfTheClock(String literal) {
    Matcher typed = TYPED_LITERAL.matcher(literal);
    if (!typed.matches()) {
      return false;
    }
    Object value = SparkSql.parsed(typed.group(1)).eval(null);
    return CLOCK_VALUE.matcher(String.valueOf(value).trim().toLowerCase(Locale.ROOT)).lookingAt();
  }

  private static void checkCall(UnresolvedFunction function, String own) {
    List<String> parts = CollectionConverters.asJava(function.nameParts());
    String name = parts.get(parts.size() - 1).toLowerCase(Locale.ROOT);
    String reason = parts.size() > 1 ? "UNKNOWN" : refusal(name);
    if (reason != null && !name.equals(own)) {
      throw new Refusal(reason, String.join(".", parts).toLowerCase(Locale.ROOT));
    }
  }

  /** Throws Refusal for a part of an analyzed expression. */
  static void checkAnalyzed(Expression tree) {
    if (!tree.deterministic()) {
      throw new Refusal("NOT_DETERMINISTIC", tree.sql());
    }
    check(tree);
  }

  private static void check(Expression tree) {
    if (tree instanceof StaticInvoke call) {
      checkTarget(call.staticObject().getName(), call.functionName());
    } else if (tree instanceof Invoke call) {
      checkTarget(targetOf(call.targetObject()), call.functionName());
    } else if (!classes().contains(plain(tree.getClass().getName()))) {
      String reason = refusal(tree.prettyName());
      boolean isNamed = reason != null && !reason.equals("UNKNOWN");
      throw new Refusal(isNamed ? reason : "EXPRESSION", tree.sql());
    }
    if (hasCollation(tree.dataType())) {
      throw new Refusal("TYPE", tree.sql());
    }
    SparkSql.children(tree).forEach(AllowedSql::check);
  }

  /** Whether texts of `type` are compared by another rule than their bytes. */
  private static boolean hasCollation(DataType type) {
    if (type instanceof StringType text) {
      return text.collationId() != StringType$.MODULE$.collationId();
    }
    if (type instanceof ArrayType array) {
      return hasCollation(array.elementType());
    }
    if (type instanceof MapType map) {
      return hasCollation(map.keyType()) || hasCollation(map.valueType());
    }
    return type instanceof StructType struct
        && Arrays.stream(struct.fields()).anyMatch(field -> hasCollation(field.dataType()));
  }

  private static String targetOf(Expression target) {
    if (target.dataType() instanceof StringType) {
      return UTF8String.class.getName();
    }
    return target instanceof Literal literal ? literal.value().getClass().getName() : "";
  }

  private static void checkTarget(String target, String method) {
    String call = plain(target) + "." + method;
    if (!CALLS.contains(call)) {
      throw new Refusal("EXPRESSION", call);
    }
  }

  /** The name of a class, without the mark of a Scala object. */
  private static String plain(String name) {
    return name.replace("$", "");
  }

  private static synchronized Set<String> classes() {
    if (classes == null) {
      classes = new HashSet<>();
      OTHERS.forEach(name -> classes.add(PACKAGE + name));
      functions().forEach(
          (name, info) -> {
            if (refusal(name) == null) {
              classes.add(plain(info.getClassName()));
            }
          });
    }
    return classes;
  }
}
