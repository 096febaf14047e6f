"""Runs Kafka and a job on this machine: set-up, an embedded broker, processes."""
