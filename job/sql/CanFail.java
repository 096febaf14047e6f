package streamjoin;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.spark.sql.catalyst.expressions.BinaryArithmetic;
import org.apache.spark.sql.catalyst.expressions.Cast;
import org.apache.spark.sql.catalyst.expressions.Cast$;
import org.apache.spark.sql.catalyst.expressions.CreateMap;
import org.apache.spark.sql.catalyst.expressions.ElementAt;
import org.apache.spark.sql.catalyst.expressions.EvalMode$;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.GetTimestamp;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.expressions.Round;
import org.apache.spark.sql.types.BinaryType;
import org.apache.spark.sql.types.BooleanType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DateType;
import org.apache.spark.sql.types.DecimalType;
import org.apache.spark.sql.types.DoubleType;
import org.apache.spark.sql.types.FloatType;
import org.apache.spark.sql.types.IntegralType;
import org.apache.spark.sql.types.MapType;
import org.apache.spark.sql.types.NullType;
import org.apache.spark.sql.types.NumericType;
import org.apache.spark.sql.types.StringType;
import org.apache.spark.sql.types.TimestampType;

/** Whether an expression can fail on a row. True also for what is not listed here. */
final class CanFail {
  private CanFail() {}

  /**
   * `tree`: after the replacement of expressions and the computation of constants. A constant that
   * is left then fails where Spark needs it.
   */
  static boolean canFail(Expression tree) {
    return !isSafe(tree) || SparkSql.children(tree).stream().anyMatch(CanFail::canFail);
  }

  /**
   * Whether a map has keys that may be null. Spark's optimizer replaces its size by a constant, but
   * not in each plan. `tree`: before the optimizer.
   */
  static boolean makesMap(Expression tree) {
    return (tree instanceof CreateMap && !tree.foldable())
        || SparkSql.children(tree).stream().anyMatch(CanFail::makesMap);
  }

  private static boolean isSafe(Expression tree) {
    String name = tree.getClass().getSimpleName();
    if (tree instanceof Cast cast) {
      return cast.evalMode() == EvalMode$.MODULE$.TRY()
          || isSafe(cast.child().dataType(), cast.dataType());
    }
    if (tree instanceof BinaryArithmetic sum && sum.evalMode() == EvalMode$.MODULE$.TRY()) {
      return true;
    }
    if (ARITHMETIC.contains(name)) {
      return isFloatingPoint(tree.dataType());
    }
    if (DIVISIONS.contains(name)) {
      Expression divisor = SparkSql.children(tree).get(1);
      boolean isExact = isFloatingPoint(tree.dataType()) || tree.dataType() instanceof IntegralType;
      return divisor instanceof Literal && isExact && !isZero(divisor);
    }
    if (SUBJECTS.containsKey(name)) {
      List<Expression> others = new ArrayList<>(SparkSql.children(tree));
      others.remove((int) SUBJECTS.get(name));
      return others.stream().allMatch(Literal.class::isInstance);
    }
    if (tree instanceof ElementAt element) {
      boolean isIndex = element.right() instanceof Literal && !isZero(element.right());
      return element.left().dataType() instanceof MapType || (!element.failOnError() && isIndex);
    }
    if (tree instanceof GetTimestamp time) {
      return !time.failOnError() && time.right() instanceof Literal;
    }
    if (tree instanceof Round round) {
      return isFloatingPoint(round.dataType());
    }
    return SAFE.contains(name);
  }

  private static boolean isZero(Expression constant) {
    Object value = constant.eval(null);
    return value instanceof Number number && number.doubleValue() == 0;
  }

  private static boolean isSafe(DataType from, DataType to) {
    if (from instanceof DateType && to instanceof TimestampType) {
      return false; // the range of a TIMESTAMP is smaller
    }
    if (from.sameType(to) || from instanceof NullType || Cast$.MODULE$.canUpCast(from, to)) {
      return true;
    }
    boolean fromText = from instanceof StringType;
    return (fromText && to instanceof BinaryType)
        || (from instanceof TimestampType && to instanceof DateType)
        || (from instanceof NumericType && isFloatingPoint(to))
        || (from instanceof BooleanType && to instanceof NumericType && !isDecimal(to));
  }

  private static boolean isDecimal(DataType type) {
    return type instanceof DecimalType;
  }

  private static boolean isFloatingPoint(DataType type) {
    return type instanceof FloatType || type instanceof DoubleType;
  }

  private static final Set<String> ARITHMETIC =
      Set.of("Add", "Subtract", "Multiply", "UnaryMinus", "Abs");
  private static final Set<String> DIVISIONS = Set.of("Divide", "Remainder", "Pmod");

  /** Expressions with a constant pattern, format or unit, and the index of the other operand. */
  private static final Map<String, Integer> SUBJECTS =
      Map.of("Like", 0, "RLike", 0, "TruncDate", 0, "TruncTimestamp", 1);

  private static final Set<String> SAFE =
      Set.of(
          "AttributeReference", "BoundReference", "Literal", "Alias", "TryEval",
          "And", "Or", "Not", "EqualTo", "EqualNullSafe", "LessThan", "LessThanOrEqual",
          "GreaterThan", "GreaterThanOrEqual", "IsNull", "IsNotNull", "IsNaN", "In", "InSet",
          "Coalesce", "If", "CaseWhen", "Greatest", "Least", "NaNvl", "KnownNotNull",
          "StartsWith", "EndsWith", "Contains", "Lower", "Upper", "Length", "OctetLength",
          "BitLength", "Ascii", "Concat", "ConcatWs", "Substring", "StringTrim", "StringTrimLeft",
          "StringTrimRight", "StringReplace", "StringTranslate", "StringInstr", "StringLocate",
          "SubstringIndex", "StringReverse", "Reverse", "InitCap", "SoundEx", "Levenshtein",
          "GetStructField", "GetMapValue", "GetJsonObject", "CreateNamedStruct", "CreateArray",
          "Md5", "Sha1", "Sha2", "Crc32", "XxHash64", "Murmur3Hash", "Hex", "Bin",
          "Year", "Quarter", "Month", "DayOfMonth", "DayOfWeek", "WeekDay", "WeekOfYear",
          "DayOfYear", "Hour", "Minute", "Second", "LastDay", "DateDiff", "DateFromUnixDate",
          "UnixDate", "UnixSeconds", "UnixMillis", "UnixMicros", "Size", "ArrayContains",
          "MapKeys", "MapValues", "Sqrt", "Exp", "Pow", "Log", "Log2", "Log10", "Log1p",
          "Sin", "Cos", "Tan", "Signum", "Rint", "PromotePrecision", "NormalizeNaNAndZero",
          "KnownFloatingPointNormalized");
}
