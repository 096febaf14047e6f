package streamjoin;

import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.spark.sql.execution.streaming.state.RocksDB;
import org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider;
import org.apache.spark.sql.execution.streaming.state.StateStore;
import org.apache.spark.sql.execution.streaming.state.StateStoreId;
import scala.Option;

/**
 * The states of the partitions of this process between two tasks.
 *
 * <p>A state is used only if it is the content of the store that a task has loaded: with each load
 * the store chooses a random id for its next commit, and it remembers the id of the content that it
 * has loaded. So the state of a commit that failed, or of a batch that is repeated from an earlier
 * version, is never used. Spark may run two tasks of a partition at the same time, after a restart
 * of the query: a task takes the state, so that the other one finds none and reads the store.
 */
public final class KeptStates {
  private static final long KEPT_MS = 10 * 60_000;
  private static final Map<StateStoreId, Kept> KEPT = new ConcurrentHashMap<>();

  private KeptStates() {}

  private static final class Kept {
    final JoinState state;
    final String commitId;
    final long at = System.currentTimeMillis();

    Kept(JoinState state, String commitId) {
      this.state = state;
      this.commitId = commitId;
    }
  }

  /** Frees the memory of all states. */
  public static void release() {
    KEPT.clear();
  }

  /** The state with the content of the store. Null: there is none. */
  static JoinState take(StateStore store) {
    Kept kept = KEPT.remove(store.id());
    Option<String> loaded = database(store).loadedStateStoreCkptId();
    boolean isContent = kept != null && loaded.isDefined() && loaded.get().equals(kept.commitId);
    return isContent ? kept.state : null;
  }

  /** Call it after the last write of a task, before the commit. */
  static void keep(StateStore store, JoinState state) {
    Option<String> commit = database(store).sessionStateStoreCkptId();
    if (commit.isDefined()) {
      KEPT.put(store.id(), new Kept(state, commit.get()));
    }
    // Partitions that other executors have taken over, and queries that have ended.
    long oldest = System.currentTimeMillis() - KEPT_MS;
    KEPT.values().removeIf(kept -> kept.at < oldest);
  }

  private static RocksDB database(StateStore store) {
    return ((RocksDBStateStoreProvider.RocksDBStateStore) store).dbInstance();
  }
}
