"""What is asked of the brokers, and how both of Kafka's clients log in."""
