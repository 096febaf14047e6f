package streamjoin;

import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
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

/**
 * Looks up schemas on the driver. Executors send the id of a schema over Spark's RPC, so that only
 * the driver needs access to the registry, its login, and the rules that compare schemas.
 */
public final class SchemaLookups {
  private static final String ENDPOINT = "streamjoin-schemas";
  /** Concurrent lookups. A lookup can take until the deadline of the registry's client. */
  private static final int THREADS = 4;

  private static final Map<String, SchemaLookup> LOOKUPS = new ConcurrentHashMap<>();
  private static RpcEnv installedIn;

  private SchemaLookups() {}

  /** Runs on the driver. `name`: unique among the lookups of all jobs in this JVM. */
  public static synchronized void install(String name, SchemaLookup lookup) {
    LOOKUPS.put(name, lookup);
    RpcEnv rpc = SparkEnv.get().rpcEnv();
    if (installedIn != rpc) {
      rpc.setupEndpoint(ENDPOINT, new Endpoint(rpc));
      installedIn = rpc;
    }
  }

  /** Runs on an executor. */
  static String answer(String name, long schemaId) {
    SparkEnv env = SparkEnv.get();
    RpcEndpointRef driver = RpcUtils.makeDriverRef(ENDPOINT, env.conf(), env.rpcEnv());
    return driver.askSync(name + " " + schemaId, ClassTag$.MODULE$.apply(String.class));
  }

  /** Has separate threads, so that Spark's own messages do not wait for the registry. */
  private static final class Endpoint implements IsolatedRpcEndpoint {
    private final RpcEnv rpc;

    Endpoint(RpcEnv rpc) {
      this.rpc = rpc;
    }

    @Override
    public RpcEnv rpcEnv() {
      return rpc;
    }

    @Override
    public int threadCount() {
      return THREADS;
    }

    @Override
    public PartialFunction<Object, BoxedUnit> receiveAndReply(RpcCallContext caller) {
      return new Receiver(caller);
    }
  }

  private static final class Receiver extends AbstractPartialFunction<Object, BoxedUnit> {
    private final RpcCallContext caller;

    Receiver(RpcCallContext caller) {
      this.caller = caller;
    }

    @Override
    public boolean isDefinedAt(Object message) {
      return message instanceof String;
    }

    @Override
    public BoxedUnit apply(Object message) {
      String[] parts = ((String) message).split(" ");
      caller.reply(LOOKUPS.get(parts[0]).answer(Long.parseLong(parts[1])));
      return BoxedUnit.UNIT;
    }
  }
}
