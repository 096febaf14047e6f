"""Options of the JVMs that the tests start for brokers and other servers."""

from deploy.local.kafka import JVM_OPTIONS

# They live for seconds: the optimizing compiler and the verification of classes cost more than they
# gain.
SHORT_LIVED = (
    "-XX:TieredStopAtLevel=1",
    "-XX:+UnlockDiagnosticVMOptions",
    "-XX:-BytecodeVerificationRemote",
)
BROKER_OPTIONS = (*JVM_OPTIONS, *SHORT_LIVED)
