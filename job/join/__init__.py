"""The two joins behind one interface: Spark's operator, and a stateful processor in Java."""
