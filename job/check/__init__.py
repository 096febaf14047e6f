"""Checks of a spec against the broker, and records of Kafka read as the job reads them."""
