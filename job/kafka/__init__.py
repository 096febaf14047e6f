"""Checks of brokers and topics, and the security settings of both Kafka clients."""
