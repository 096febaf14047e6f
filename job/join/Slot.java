package streamjoin;

/** The rows of one side, or its ids, in a range of time: on the heap, or only in the store. */
final class Slot {
  static final long UNKNOWN = -1;

  /** The list of the state. */
  final int side;
  final long number;

  /** All rows of the slot. Null: the slot is not on the heap. */
  SlotRows rows;

  /** Whether the store may have entries of the slot. */
  boolean isStored;

  /** The keys of a slot that is not on the heap. Null: not known. */
  KeyFilter filter;

  /** Bytes of the rows on the heap. Of a slot that is not there: those that it had, or an estimate. */
  long size;

  /** Number of rows of a slot that is not on the heap. */
  long count = UNKNOWN;

  /** Whether the slot must stay on the heap. */
  boolean isPinned;

  /** How often rows were found in the slot or added to it, lately. */
  long uses;

  Slot(int side, long number, SlotRows rows) {
    this.side = side;
    this.number = number;
    this.rows = rows;
    isStored = rows == null;
  }
}
