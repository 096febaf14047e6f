"""Values in Avro and Protobuf, each with the id of its schema in a registry (Confluent's wire
format): which columns a schema has, and how a value becomes a row of them.

No Spark: dataflow.py hands whole Arrow arrays to decoder.py, on the executors.
"""
