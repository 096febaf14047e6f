"""The writer of transactions in Java, for both joins, compiled by `make setup`."""
