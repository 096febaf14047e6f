package streamjoin;

/**
 * A Bloom filter of the keys of a slot whose rows are only in the store: most keys that the slot
 * does not have need no lookup there.
 */
final class KeyFilter {
  private static final int BITS_PER_KEY = 10;
  private static final int HASHES = 6;

  private final long[] words;
  private final long keysMax;
  private long keys;

  /** A filter for some more keys than `expected`. */
  KeyFilter(int expected) {
    keysMax = 2L * Math.max(8, expected);
    long bits = keysMax * BITS_PER_KEY;
    words = new long[(int) Math.min(Integer.MAX_VALUE / 64, (bits + 63) / 64)];
  }

  /** False: the filter has too many keys, so that it does not exclude most others any more. */
  boolean add(int hash) {
    if (++keys > keysMax) {
      return false;
    }
    long more = spread(hash);
    for (int i = 0; i < HASHES; i++) {
      int bit = bit(hash, more, i);
      words[bit >>> 6] |= 1L << bit;
    }
    return true;
  }

  /** False: no key with this hash was added. */
  boolean mayContain(int hash) {
    long more = spread(hash);
    for (int i = 0; i < HASHES; i++) {
      int bit = bit(hash, more, i);
      if ((words[bit >>> 6] & 1L << bit) == 0) {
        return false;
      }
    }
    return true;
  }

  long bytes() {
    return 8L * words.length;
  }

  private int bit(int hash, long more, int i) {
    return (int) Long.remainderUnsigned((hash & 0xffffffffL) + i * more, 64L * words.length);
  }

  private static long spread(int hash) {
    long mixed = (hash & 0xffffffffL) * 0x9e3779b97f4a7c15L;
    return mixed >>> 17 | 1;
  }
}
