"""Results in Avro: the encoder in Java, compiled by `make setup`, and its use as a Spark column."""
