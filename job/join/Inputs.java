package streamjoin;

import java.io.Serializable;

/** The sides of the spec as the left and right side of the join, and their topics. */
public final class Inputs implements Serializable {
  /** As in job/spec/source_topics.py. */
  private static final int PARTITION_BITS = 10;

  /** The left side of the spec is that of the join, and no side reads several topics. */
  public static final Inputs OF_ONE_TOPIC_EACH =
      new Inputs("left", new String[0], new String[0]);

  private final String first;
  private final String[][] topics;

  /**
   * @param first the side of the spec that is the left one of the join
   * @param left the topics of this side, in their order; none if the side reads only one
   */
  public Inputs(String first, String[] left, String[] right) {
    this.first = first;
    topics = new String[][] {left, right};
  }

  /** @param name of a side of the spec */
  int sideOf(String name) {
    return name.equals(first) ? JoinRules.LEFT : JoinRules.RIGHT;
  }

  /**
   * As in job/plan/position.py.
   *
   * @param place topic, partition and offset of a record
   */
  long position(int side, String place) {
    String[] parts = place.split("/");
    long number = Long.parseLong(parts[1]) + ((long) indexOf(side, parts[0]) << PARTITION_BITS);
    return (number << StoredRow.OFFSET_BITS) + Long.parseLong(parts[2]);
  }

  private int indexOf(int side, String topic) {
    String[] of = topics[side];
    int index = 0;
    while (of.length > 0 && !of[index].equals(topic)) {
      index++;
    }
    return index;
  }
}
