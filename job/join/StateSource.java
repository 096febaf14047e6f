package streamjoin;

import java.io.IOException;
import java.util.Map;
import java.util.Set;
import org.apache.spark.TaskContext;
import org.apache.spark.TaskContext$;
import org.apache.spark.TaskContextImpl;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.connector.catalog.SupportsRead;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableCapability;
import org.apache.spark.sql.connector.catalog.TableProvider;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.connector.read.Batch;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReader;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.execution.datasources.v2.state.StateDataSource;
import org.apache.spark.sql.execution.datasources.v2.state.StatePartitionReaderBase;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import scala.Option;

/**
 * Spark's data source "statestore", whose readers also close RocksDB if their task is cancelled.
 *
 * <p>Spark's reader opens the state store in the task. If the task is cancelled, the store releases
 * itself first, and {@code close} of the reader then fails before it closes RocksDB: memory and files
 * stay open until the JVM ends. A task that is cancelled while it loads the store loses it. Here the
 * store is opened with another task context, which is never cancelled and ends with the reader.
 */
public final class StateSource implements TableProvider {
  private final StateDataSource source = new StateDataSource();

  @Override
  public StructType inferSchema(CaseInsensitiveStringMap options) {
    return source.inferSchema(options);
  }

  @Override
  public Table getTable(StructType schema, Transform[] partitions, Map<String, String> options) {
    return new StateTable((SupportsRead) source.getTable(schema, partitions, options));
  }

  private static final class StateTable implements SupportsRead {
    private final SupportsRead table;

    StateTable(SupportsRead table) {
      this.table = table;
    }

    @Override
    public String name() {
      return table.name();
    }

    @Override
    @SuppressWarnings("deprecation") // Spark's own tables implement only this method.
    public StructType schema() {
      return table.schema();
    }

    @Override
    public Set<TableCapability> capabilities() {
      return table.capabilities();
    }

    @Override
    public ScanBuilder newScanBuilder(CaseInsensitiveStringMap options) {
      return () -> new StateScan(table.newScanBuilder(options).build());
    }
  }

  private static final class StateScan implements Scan, Batch {
    private final Scan scan;

    StateScan(Scan scan) {
      this.scan = scan;
    }

    @Override
    public StructType readSchema() {
      return scan.readSchema();
    }

    @Override
    public Batch toBatch() {
      return this;
    }

    @Override
    public InputPartition[] planInputPartitions() {
      return scan.toBatch().planInputPartitions();
    }

    @Override
    public PartitionReaderFactory createReaderFactory() {
      PartitionReaderFactory factory = scan.toBatch().createReaderFactory();
      return partition -> new StateReader(factory.createReader(partition));
    }
  }

  private static final class StateReader implements PartitionReader<InternalRow> {
    private final StatePartitionReaderBase reader;
    private TaskContextImpl context;

    StateReader(PartitionReader<InternalRow> reader) {
      this.reader = (StatePartitionReaderBase) reader;
    }

    @Override
    public boolean next() throws IOException {
      if (context != null) {
        return reader.next();
      }
      TaskContext task = TaskContext.get();
      context = TaskContext$.MODULE$.empty();
      TaskContext$.MODULE$.setTaskContext(context);
      try {
        return reader.next();
      } finally {
        TaskContext$.MODULE$.setTaskContext(task);
      }
    }

    @Override
    public InternalRow get() {
      return reader.get();
    }

    @Override
    public void close() {
      if (context != null && !context.isCompleted()) {
        try {
          context.markTaskCompleted(Option.empty()); // Closes the iterator and releases the store.
        } finally {
          reader.provider().close();
        }
      }
    }
  }
}
