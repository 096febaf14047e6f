"""Runs a join on this machine: set-up, an embedded Kafka broker, the demo."""
