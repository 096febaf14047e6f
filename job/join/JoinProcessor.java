package streamjoin;

import java.util.Map;
import org.apache.spark.TaskContext;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.BasePredicate;
import org.apache.spark.sql.catalyst.expressions.JoinedRow;
import org.apache.spark.sql.catalyst.expressions.Predicate;
import org.apache.spark.sql.catalyst.expressions.UnsafeProjection;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.execution.streaming.operators.stateful.transformwithstate.statefulprocessor.DriverStatefulProcessorHandleImpl;
import org.apache.spark.sql.execution.streaming.operators.stateful.transformwithstate.statefulprocessor.StatefulProcessorHandleImpl;
import org.apache.spark.sql.execution.streaming.operators.stateful.transformwithstate.statevariables.ListStateImpl;
import org.apache.spark.sql.execution.streaming.state.StateStore;
import org.apache.spark.sql.execution.streaming.state.StateStoreColFamilySchema;
import org.apache.spark.sql.streaming.ListState;
import org.apache.spark.sql.streaming.OutputMode;
import org.apache.spark.sql.streaming.StatefulProcessor;
import org.apache.spark.sql.streaming.StatefulProcessorHandle;
import org.apache.spark.sql.streaming.TTLConfig;
import org.apache.spark.sql.streaming.TimeMode;
import org.apache.spark.sql.types.StructType;
import scala.Option;
import scala.jdk.javaapi.CollectionConverters;

/** A join as a stateful processor: what all joins do with the state and the condition. */
abstract class JoinProcessor extends StatefulProcessor<InternalRow, InternalRow, InternalRow> {
  static final int LEFT = JoinRules.LEFT;
  static final int RIGHT = JoinRules.RIGHT;

  /** Names of the lists in state. */
  private static final String[] LISTS = {"left", "right", "left_ids", "right_ids"};

  final JoinRules rules;

  transient JoinState state;
  transient ListState<Long> clock;
  private transient StateStore store;
  private transient BasePredicate condition;
  private transient JoinedRow pair;
  private transient UnsafeProjection keyProjection;

  JoinProcessor(JoinRules rules) {
    this.rules = rules;
  }

  @Override
  public void init(OutputMode outputMode, TimeMode timeMode) {
    StatefulProcessorHandle handle = getHandle();
    clock =
        Interpreted.projectionsOf(
            () -> handle.getListState("clock", NumberEncoder.INSTANCE, TTLConfig.NONE()));
    if (handle instanceof DriverStatefulProcessorHandleImpl) {
      registerRows((DriverStatefulProcessorHandleImpl) handle);
      return;
    }
    store = ((ListStateImpl<Long>) clock).stateStore();
    takeState();
    TaskEnd.call((StatefulProcessorHandleImpl) handle, this::write);
    keyProjection = UnsafeProjection.create(rules.keySchema);
    pair = new JoinedRow();
    if (rules.condition != null) {
      condition = Predicate.create(rules.condition);
      condition.initialize(0);
    }
    taskBegins();
  }

  /** Called before the first row. */
  abstract void taskBegins();

  /** Called after the last row, before the state is written. */
  void taskEnds() {}

  /** Whether a pair of rows meets the condition. */
  boolean matches(InternalRow left, InternalRow right) {
    return condition == null || condition.eval(pair.apply(left, right));
  }

  /** A key for the state. Valid until the next call. */
  UnsafeRow stateKey(InternalRow key) {
    return keyProjection.apply(key);
  }

  /** Describes the rows in state as lists, for Spark's state reader. */
  private void registerRows(DriverStatefulProcessorHandleImpl handle) {
    Map<String, StateStoreColFamilySchema> schemas =
        CollectionConverters.asJava(handle.columnFamilySchemas());
    for (int list = LEFT; list < LISTS.length; list++) {
      if (!rules.stores(list)) {
        continue;
      }
      StructType entry = SlotStore.entrySchema(StateNames.encoded(rules.rowSchemas[list]));
      handle.getListState(LISTS[list], InternalRows.schemaOnly(entry), TTLConfig.NONE());
      StateStoreColFamilySchema schema = schemas.get(LISTS[list]);
      StateStoreColFamilySchema sorted =
          schema.copy(
              schema.colFamilyName(),
              schema.keySchemaId(),
              rules.keySchemas[list],
              schema.valueSchemaId(),
              schema.valueSchema(),
              Option.apply(SlotStore.keyEncoder(rules.keySchemas[list])),
              schema.userKeyEncoderSchema());
      schemas.put(LISTS[list], sorted);
    }
  }

  private void takeState() {
    SlotStore[] stores = new SlotStore[LISTS.length];
    for (int list = LEFT; list < LISTS.length; list++) {
      if (rules.stores(list)) {
        boolean isTable = rules.table != null && list == RIGHT;
        stores[list] =
            new SlotStore(
                store, LISTS[list], rules.keySchemas[list], rules.rowSchemas[list], isTable);
      }
    }
    state = KeptStates.take(store);
    if (state == null) {
      state = new JoinState(rules, stores, heapBytes());
    }
    state.begin(rules, stores);
  }

  private long heapBytes() {
    if (rules.heapBytes > 0) {
      return rules.heapBytes;
    }
    int partitions = TaskContext.get().numPartitions();
    return (long) (Runtime.getRuntime().maxMemory() * rules.heapShare / partitions);
  }

  /** Called before the commit. */
  private void write() {
    taskEnds();
    state.write();
    state.end();
    KeptStates.keep(store, state);
  }
}
