"""How a join is run on this machine: set-up, an embedded Kafka broker, the demo."""
