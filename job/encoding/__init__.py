"""Values in Confluent's wire format as Spark columns: decoders of records and encoders of results
in Java, compiled by `make setup`."""
