package streamjoin;

/** Which of its matches is the result of a left row. The names are those of the spec. */
enum Pick {
  /** All matches are results. */
  NONE {
    @Override
    boolean isBetter(long distance, long than) {
      throw new IllegalStateException("all matches are results");
    }
  },
  LATEST {
    @Override
    boolean isBetter(long distance, long than) {
      return distance > than;
    }
  },
  EARLIEST {
    @Override
    boolean isBetter(long distance, long than) {
      return distance < than;
    }
  },
  /** Of two that are equally near, the earlier one. */
  NEAREST {
    @Override
    boolean isBetter(long distance, long than) {
      long near = Math.abs(distance) - Math.abs(than);
      return near < 0 || (near == 0 && distance < than);
    }
  };

  /**
   * Whether a right row is better than another one, by their distances: their event times minus that
   * of the left row.
   */
  abstract boolean isBetter(long distance, long than);
}
