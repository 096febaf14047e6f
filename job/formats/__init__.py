"""Avro and Protobuf values in Confluent's wire format: columns of a schema, decoding of values.

Does not import Spark: dataflow/arrow_decoder.py passes Arrow arrays to decoder.py on the executors.
"""
