package streamjoin;

import java.util.LinkedHashMap;
import java.util.Map;

/** The entries that were read or put last. The others are dropped: the process has little memory. */
final class LatestMap<K, V> extends LinkedHashMap<K, V> {
  private static final int ENTRIES_MAX = 500;

  LatestMap() {
    super(16, 0.75f, true);
  }

  @Override
  protected boolean removeEldestEntry(Map.Entry<K, V> eldest) {
    return size() > ENTRIES_MAX;
  }
}
