package streamjoin;

import java.util.Arrays;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.unsafe.Platform;

/**
 * Entries of some fields and the columns of a row, one after the other in pages of bytes.
 *
 * <p>The place of an entry is the number of its page and of a word of 8 bytes in it. Later entries
 * have larger places. A larger entry than a page has one for itself.
 */
final class Pages {
  static final int NONE = -1;

  private static final int FIRST_PAGE = 1 << 9;
  private static final int WORD_BITS = 15;
  private static final int WORDS = 1 << WORD_BITS;
  private static final int LARGEST_PAGE = WORDS * Long.BYTES;
  private static final int PAGES_MAX = 1 << Integer.SIZE - 1 - WORD_BITS;

  private byte[][] pages = {new byte[FIRST_PAGE]};

  /** The used words of each page. */
  private int[] used = {0};

  private int last;
  private long bytes = FIRST_PAGE;

  long bytes() {
    return bytes;
  }

  /** Copies columns, after `fields` bytes for the fields of the entry. Returns its place. */
  int append(int fields, UnsafeRow columns) {
    int words = (fields + columns.getSizeInBytes()) / Long.BYTES;
    if (used[last] + words > pages[last].length / Long.BYTES) {
      addPage(words);
    }
    int place = (last << WORD_BITS) + used[last];
    columns.writeToMemory(pages[last], offset(place) + fields);
    used[last] += words;
    return place;
  }

  /** `words`: of the entry that needs it. */
  private void addPage(int words) {
    int larger = Math.min(2 * pages[last].length, LARGEST_PAGE);
    if (++last == PAGES_MAX) {
      throw new IllegalStateException("the rows of a slot fill the largest number of pages");
    }
    if (last == pages.length) {
      pages = Arrays.copyOf(pages, 2 * last);
      used = Arrays.copyOf(used, 2 * last);
    }
    pages[last] = new byte[Math.max(larger, words * Long.BYTES)];
    bytes += pages[last].length;
  }

  /** The place after all entries. */
  int end() {
    return (last << WORD_BITS) + Math.min(used[last], WORDS);
  }

  /** The place after an entry with so many bytes. */
  static int after(int place, int bytes) {
    int word = (place & WORDS - 1) + bytes / Long.BYTES;
    return (place & -WORDS) + Math.min(word, WORDS);
  }

  /** The first entry at a place or after it, or NONE. */
  int entry(int place) {
    int page = place >>> WORD_BITS;
    if (page <= last && (place & WORDS - 1) >= used[page]) {
      page++;
      return page <= last ? page << WORD_BITS : NONE;
    }
    return page <= last ? place : NONE;
  }

  /** The columns of an entry. They stay valid. `size`: their bytes. */
  UnsafeRow columns(int place, int fields, int size, int width) {
    UnsafeRow row = new UnsafeRow(width);
    row.pointTo(page(place), offset(place) + fields, size);
    return row;
  }

  int getInt(int place, int field) {
    return Platform.getInt(page(place), offset(place) + field);
  }

  void putInt(int place, int field, int value) {
    Platform.putInt(page(place), offset(place) + field, value);
  }

  long getLong(int place, int field) {
    return Platform.getLong(page(place), offset(place) + field);
  }

  void putLong(int place, int field, long value) {
    Platform.putLong(page(place), offset(place) + field, value);
  }

  byte[] page(int place) {
    return pages[place >>> WORD_BITS];
  }

  static long offset(int place) {
    return Platform.BYTE_ARRAY_OFFSET + (long) (place & WORDS - 1) * Long.BYTES;
  }
}
