package streamjoin;

import java.util.ArrayList;
import java.util.List;
import java.util.NoSuchElementException;
import org.apache.spark.sql.catalyst.InternalRow;
import scala.collection.AbstractIterator;

/** Output rows that `fill` adds, some at a time. Without an override of `fill`: no rows. */
class Buffered extends AbstractIterator<InternalRow> {
  private final List<InternalRow> buffer = new ArrayList<>();
  private int next;
  private boolean ended;

  /** Adds zero or more rows to `output`. False: there are no further rows. */
  boolean fill(List<InternalRow> output) {
    return false;
  }

  @Override
  public boolean hasNext() {
    while (next == buffer.size() && !ended) {
      buffer.clear();
      next = 0;
      ended = !fill(buffer);
    }
    return next < buffer.size();
  }

  @Override
  public InternalRow next() {
    if (!hasNext()) {
      throw new NoSuchElementException();
    }
    return buffer.get(next++);
  }
}
