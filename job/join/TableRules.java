package streamjoin;

import java.io.Serializable;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;

/**
 * Which row of a key a row of the stream joins. processor.py makes it from the TablePlan.
 *
 * <p>In an as-of join the rows of a key are its versions: each is valid from its event time until
 * that of the next one. A version that deletes its key has `matched`.
 */
public final class TableRules implements Serializable {
  private static final Comparator<StoredRow> BY_TIME =
      Comparator.<StoredRow>comparingLong(row -> row.eventTime)
          .thenComparingLong(row -> row.position);

  /** Why a row of the stream has no version. */
  static final int NO_KEY = 0;

  static final int DELETED = 1;
  static final int BEFORE_FIRST = 2;

  /** False: a key has one row, the newest by offset. */
  final boolean isAsOf;

  /** How far a version may be out of order, in microseconds. */
  private final long delay;

  /** How long a version is valid at most, in microseconds. 0: until the next one. */
  private final long retention;

  /** Whether a row before all versions of its key joins the first one. */
  private final boolean takesFirst;

  /** Whether a row of the stream has its result once it has waited, and none before. */
  final boolean isFinal;

  /**
   * How long a row of the stream waits after the watermark has passed it, in milliseconds; if it is
   * not final, until it finds a row of the table.
   */
  private final long wait;

  public TableRules(
      boolean isAsOf,
      long delay,
      long retention,
      boolean takesFirst,
      boolean isFinal,
      long wait) {
    this.isAsOf = isAsOf;
    this.delay = delay;
    this.retention = retention;
    this.takesFirst = takesFirst;
    this.isFinal = isFinal;
    this.wait = wait;
  }

  /** Whether rows of the stream are in state. */
  boolean storesStream() {
    return isFinal || wait > 0;
  }

  /** Up to which event time rows have their results at a watermark. Both are milliseconds. */
  long decidedUntil(long watermark) {
    return Math.max(watermark, wait) - wait; // Before any watermark: the smallest number.
  }

  /**
   * What a version becomes that is read when rows up to the time `until`, in milliseconds, may have
   * their results: valid from then on, if it is newer than the version that is valid then. Null: it
   * is not.
   */
  static StoredRow late(List<StoredRow> versions, StoredRow version, long until) {
    for (StoredRow other : versions) {
      boolean isNewer = BY_TIME.compare(other, version) >= 0;
      if (isNewer && validFrom(other) <= until * InputRow.MICROS_PER_MILLI) {
        return null;
      }
    }
    return new StoredRow(
        version.eventTime, until, version.position, version.matched, version.row);
  }

  /** From which time on a version is valid, in microseconds. A late one: from its `expiresAt`. */
  private static long validFrom(StoredRow version) {
    boolean isLate = version.expiresAt > JoinRules.ceilMillis(version.eventTime);
    return isLate ? version.expiresAt * InputRow.MICROS_PER_MILLI : version.eventTime;
  }

  /**
   * The versions that rows of the stream after the watermark can need, by time. Of several with one
   * time, the one with the largest position. `watermark`: of the stream, in milliseconds.
   */
  List<StoredRow> kept(List<StoredRow> versions, long watermark) {
    List<StoredRow> sorted = new ArrayList<>(versions);
    sorted.sort(BY_TIME);
    long until = watermark * InputRow.MICROS_PER_MILLI;
    List<StoredRow> kept = new ArrayList<>(sorted.size());
    for (StoredRow version : sorted) {
      if (!kept.isEmpty() && validFrom(kept.get(kept.size() - 1)) == validFrom(version)) {
        kept.remove(kept.size() - 1);
      }
      if (validFrom(version) <= until) {
        kept.clear();
      }
      kept.add(version);
    }
    if (!kept.isEmpty() && hasEnded(kept.get(0), until)) {
      kept.remove(0);
    }
    return kept;
  }

  /** Whether no row after the time `until` joins a version, nor one that comes before it. */
  private boolean hasEnded(StoredRow version, long until) {
    long age = until - version.eventTime;
    return (version.matched && age >= delay) || (retention > 0 && age >= retention);
  }

  /** The version that is valid at a time, of those that are kept. Null: none; see `reason`. */
  StoredRow at(List<StoredRow> versions, long time) {
    StoredRow found = null;
    for (StoredRow version : versions) {
      if (found != null && validFrom(version) > time) {
        break;
      }
      found = version;
    }
    boolean isValid =
        found != null
            && !found.matched
            && (validFrom(found) > time
                ? takesFirst
                : retention == 0 || time - found.eventTime <= retention);
    return isValid ? found : null;
  }

  /** Why no version is valid at a time. */
  static int reason(List<StoredRow> versions, long time) {
    if (versions.isEmpty()) {
      return NO_KEY;
    }
    return validFrom(versions.get(0)) > time ? BEFORE_FIRST : DELETED;
  }
}
