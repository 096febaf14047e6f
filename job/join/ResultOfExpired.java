package streamjoin;

import java.util.List;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;

/** Chooses the match of a left row that has expired: all rows that can match are in state. */
interface ResultOfExpired {
  /** Emits the result of a left row, if it has one. `key`: its slot is changed. */
  void emit(UnsafeRow key, int hash, StoredRow left, List<InternalRow> output);
}
