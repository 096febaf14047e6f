"""Writes results and dead letters to Kafka: exactly once, or at least once."""
