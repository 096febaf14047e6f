"""The login to Amazon MSK of Kafka's Java client, without AWS: the client accepts the settings of
the job, and its signature is that of librdkafka's tokens."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql import SparkSession

from job.installation.jars import fetch, jar_folder
from job.kafka.security import KafkaAccess, spark_options
from job.spec.security import KafkaSecurity
from tests.aws_signature import signature

SECRET = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"
KEYS = {
    "aws.accessKeyId": "AKIDEXAMPLE",
    "aws.secretAccessKey": SECRET,
    "aws.sessionToken": "a/session+token=",
}
HOST = "b-1.joins.abc123.c2.kafka.eu-west-1.amazonaws.com"
IAM = {"protocol": "SASL_SSL", "mechanism": "AWS_MSK_IAM", "region": "eu-west-1"}


@pytest.fixture
def jvm(spark: SparkSession) -> Iterator[Any]:
    """The JVM, in which Amazon's SDK finds credentials."""
    jvm = spark.sparkContext._jvm
    assert jvm is not None
    for name, value in KEYS.items():
        jvm.java.lang.System.setProperty(name, value)
    yield jvm
    for name in KEYS:
        jvm.java.lang.System.clearProperty(name)


def sent_by_kafka(jvm: Any, options: dict[str, str]) -> dict[str, str]:
    """What Kafka's client sends to the broker HOST for the login."""
    fetch("msk")
    [kafka] = jar_folder("spark").glob("kafka-clients-*.jar")
    jars = [kafka, *jar_folder("msk").glob("*.jar")]

    def array(kind: Any, *values: Any) -> Any:
        made = jvm.java.lang.reflect.Array.newInstance(kind, len(values))
        for index, value in enumerate(values):
            jvm.java.lang.reflect.Array.set(made, index, value)
        return made

    def java(name: str, loader: Any = None) -> Any:
        return jvm.java.lang.Class.forName(name, True, loader)

    urls = [jvm.java.io.File(str(jar)).toURI().toURL() for jar in jars]
    loader = jvm.java.net.URLClassLoader(array(java("java.net.URL"), *urls))
    some, string, mapping = (java(f"java.{n}") for n in ("lang.Object", "lang.String", "util.Map"))
    classes = java("java.lang.Class")

    password = java("org.apache.kafka.common.config.types.Password", loader)
    line = password.getConstructor(array(classes, string)).newInstance(
        array(some, options["kafka.sasl.jaas.config"])
    )
    configs = jvm.java.util.HashMap()
    configs.put("sasl.jaas.config", line)
    context = java("org.apache.kafka.common.security.JaasContext", loader)
    load = context.getMethod("loadClientContext", array(classes, mapping))
    entries = load.invoke(None, array(some, configs)).configurationEntries()
    for entry in entries:  # a login module registers its mechanism
        java(entry.getLoginModuleName(), loader)

    handler = java(options["kafka.sasl.client.callback.handler.class"], loader)
    callbacks = handler.getConstructor(array(classes)).newInstance(array(some))
    mechanism = options["kafka.sasl.mechanism"]
    callbacks.configure(configs, mechanism, entries)
    client = jvm.javax.security.sasl.Sasl.createSaslClient(
        array(string, mechanism), None, "kafka", HOST, configs, callbacks
    )
    sent: dict[str, str] = json.loads(bytes(client.evaluateChallenge(b"")))
    return sent


def test_java_client_signs_as_librdkafka(jvm: Any) -> None:
    options = spark_options(KafkaAccess("b:9098", KafkaSecurity.model_validate(IAM)))
    sent = sent_by_kafka(jvm, options)

    assert ("2020_10_22", HOST) == (sent.pop("version"), sent.pop("host"))
    assert sent.pop("user-agent").startswith("aws-msk-iam-auth/")
    day = sent["x-amz-date"][:8]
    # The parameters of librdkafka's tokens: tests/unit/kafka/test_msk.py.
    names = ("Action", "X-Amz-Algorithm", "X-Amz-Credential", "X-Amz-Date", "X-Amz-Expires")
    names += ("X-Amz-Security-Token", "X-Amz-SignedHeaders")
    query = {name: sent.pop(name.lower()) for name in names}
    assert "kafka-cluster:Connect" == query["Action"]
    assert f"AKIDEXAMPLE/{day}/eu-west-1/kafka-cluster/aws4_request" == query["X-Amz-Credential"]
    assert "a/session+token=" == query["X-Amz-Security-Token"]
    assert "host" == query["X-Amz-SignedHeaders"]
    assert 850 < int(query["X-Amz-Expires"]) <= 900
    assert {"x-amz-signature": signature(HOST, query, SECRET)} == sent
