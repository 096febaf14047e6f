"""Options of the brokers that the tests start."""

from deploy.local.kafka import JVM_OPTIONS

BROKER_OPTIONS = (*JVM_OPTIONS, "-XX:TieredStopAtLevel=1")
