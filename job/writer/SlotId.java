package streamjoin;

import java.io.Serializable;

/**
 * A transactional producer of a query: that of a state partition, or that of the dead letters of
 * micro-batches.
 *
 * @param partition of the commit topic; no two slots share one
 */
record SlotId(String name, int partition) implements Serializable {}
