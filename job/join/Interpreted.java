package streamjoin;

import org.apache.spark.sql.internal.SQLConf;
import org.apache.spark.sql.internal.SQLConf$;
import scala.Function0;

/**
 * Makes Spark interpret the projections that it creates, instead of generating Java code for them.
 *
 * <p>Spark creates the variables of a state in each task of each interval, before the first row.
 * The code of a variable's projections takes some 20 ms, while the records of both topics wait. A
 * task uses these projections a few times at most.
 */
final class Interpreted {
  private static final SQLConf CONF = new SQLConf();

  static {
    CONF.setConfString("spark.sql.codegen.factoryMode", "NO_CODEGEN");
  }

  private Interpreted() {}

  static <T> T projectionsOf(Function0<T> code) {
    return SQLConf$.MODULE$.withExistingConf(CONF, code);
  }
}
