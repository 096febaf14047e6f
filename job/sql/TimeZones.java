package streamjoin;

import java.time.DateTimeException;
import java.time.Duration;
import java.time.Instant;
import java.time.ZoneId;
import java.time.ZoneOffset;
import java.time.zone.ZoneOffsetTransition;
import java.time.zone.ZoneOffsetTransitionRule;
import java.time.zone.ZoneRules;
import java.util.ArrayList;
import java.util.List;

/** The time zones of Java, in which Spark computes. */
final class TimeZones {
  private static final int YEAR = 2100;

  private TimeZones() {}

  /** Whether `name` is an IANA name or an offset such as +08:00. */
  static boolean isKnown(String name) {
    if (ZoneId.getAvailableZoneIds().contains(name)) {
      return true;
    }
    try {
      return name.matches("[+-]\\d\\d:\\d\\d") && ZoneOffset.of(name) != null;
    } catch (DateTimeException error) { // beyond 18 hours
      return false;
    }
  }

  /** The longest time since 1970 by which clocks of a zone were, or will be, set back at once. */
  static Duration longestSetBack(String name) {
    ZoneRules rules = ZoneId.of(name).getRules();
    List<ZoneOffsetTransition> changes = new ArrayList<>(rules.getTransitions());
    for (ZoneOffsetTransitionRule rule : rules.getTransitionRules()) {
      changes.add(rule.createTransition(YEAR));
    }
    return changes.stream()
        .filter(change -> change.isOverlap() && change.getInstant().isAfter(Instant.EPOCH))
        .map(change -> change.getDuration().negated())
        .reduce(Duration.ZERO, (a, b) -> a.compareTo(b) > 0 ? a : b);
  }
}
