"""Avro and Protobuf values in Confluent's wire format: columns of a schema, decoding of values.

Does not import Spark: encoding/ decodes and encodes in the JVM, with the JSON of decoder.py.
"""
