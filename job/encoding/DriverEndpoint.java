package streamjoin;

import java.util.HashMap;
import java.util.Map;
import java.util.function.UnaryOperator;
import org.apache.spark.SparkEnv;
import org.apache.spark.rpc.IsolatedRpcEndpoint;
import org.apache.spark.rpc.RpcCallContext;
import org.apache.spark.rpc.RpcEndpointRef;
import org.apache.spark.rpc.RpcEnv;
import org.apache.spark.util.RpcUtils;
import scala.PartialFunction;
import scala.reflect.ClassTag$;
import scala.runtime.AbstractPartialFunction;
import scala.runtime.BoxedUnit;

/** A function on the driver that executors call over Spark's RPC: from a text to a text. */
final class DriverEndpoint implements IsolatedRpcEndpoint {
  private static final Map<String, RpcEnv> INSTALLED = new HashMap<>();

  private final RpcEnv rpc;
  private final int threads;
  private final UnaryOperator<String> function;

  private DriverEndpoint(RpcEnv rpc, int threads, UnaryOperator<String> function) {
    this.rpc = rpc;
    this.threads = threads;
    this.function = function;
  }

  /** Runs on the driver. `threads`: own ones, so that Spark's messages do not wait for the calls. */
  static void install(String name, int threads, UnaryOperator<String> function) {
    RpcEnv rpc = SparkEnv.get().rpcEnv();
    synchronized (INSTALLED) {
      if (INSTALLED.put(name, rpc) != rpc) {
        rpc.setupEndpoint(name, new DriverEndpoint(rpc, threads, function));
      }
    }
  }

  /** Runs on an executor. */
  static String ask(String name, String question) {
    SparkEnv env = SparkEnv.get();
    RpcEndpointRef driver = RpcUtils.makeDriverRef(name, env.conf(), env.rpcEnv());
    return driver.askSync(question, ClassTag$.MODULE$.apply(String.class));
  }

  @Override
  public RpcEnv rpcEnv() {
    return rpc;
  }

  @Override
  public int threadCount() {
    return threads;
  }

  @Override
  public PartialFunction<Object, BoxedUnit> receiveAndReply(RpcCallContext caller) {
    return new AbstractPartialFunction<Object, BoxedUnit>() {
      @Override
      public boolean isDefinedAt(Object message) {
        return message instanceof String;
      }

      @Override
      public BoxedUnit apply(Object message) {
        caller.reply(function.apply((String) message));
        return BoxedUnit.UNIT;
      }
    };
  }
}
