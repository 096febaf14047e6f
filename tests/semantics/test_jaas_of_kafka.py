"""Passwords reach Kafka's Java client unchanged, according to its own JAAS parser."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from job.kafka.security import jaas
from job.spec.security import Mechanism

JARS = Path(__file__).parents[2] / ".jars" / "spark"
TROUBLE = ['"', "\\", "//", "/* x", "'", ";", "\\n", '\\"', "# x", "a b", "\u00e9\u20ac\U0001f600"]
# All of Unicode except surrogates and refused characters, and special characters more often.
TEXT = st.text(
    st.characters(min_codepoint=0x20, exclude_categories=["Cs"], exclude_characters="\x7f"),
    max_size=5,
)
SECRETS = st.lists(TEXT | st.sampled_from(TROUBLE), min_size=1, max_size=8).map("".join)

Options = dict[str, str]
Reader = Callable[[str], Options]


@pytest.fixture(scope="module")
def read_by_kafka(spark: SparkSession) -> Reader:
    """The options in a line of sasl.jaas.config, as org.apache.kafka.common.security reads it."""
    context = spark.sparkContext
    jvm, gateway = context._jvm, context._gateway
    assert jvm is not None
    assert gateway is not None
    [jar] = JARS.glob("kafka-clients-*.jar")
    urls = gateway.new_array(jvm.java.net.URL, 1)
    urls[0] = jvm.java.io.File(str(jar)).toURI().toURL()
    loader = jvm.java.net.URLClassLoader(urls)

    def loaded(name: str) -> Any:
        return jvm.java.lang.Class.forName(f"org.apache.kafka.common.{name}", True, loader)

    def classes(kind: Any) -> Any:
        array = gateway.new_array(jvm.java.lang.Class, 1)
        array[0] = kind
        return array

    def objects(value: Any) -> Any:
        array = gateway.new_array(jvm.java.lang.Object, 1)
        array[0] = value
        return array

    string, mapping = (
        jvm.java.lang.Class.forName(f"java.{n}") for n in ("lang.String", "util.Map")
    )
    password = loaded("config.types.Password").getConstructor(classes(string))
    load = loaded("security.JaasContext").getMethod("loadClientContext", classes(mapping))

    def read(line: str) -> Options:
        given = jvm.java.util.HashMap()
        given.put("sasl.jaas.config", password.newInstance(objects(line)))
        [entry] = load.invoke(None, objects(given)).configurationEntries()
        return dict(entry.getOptions())

    return read


@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(secrets=st.lists(SECRETS, min_size=3, max_size=10))
def test_any_secret_is_read_back_unchanged(read_by_kafka: Reader, secrets: list[str]) -> None:
    options = {f"option{number}": secret for number, secret in enumerate(secrets)}

    assert options == read_by_kafka(jaas(Mechanism.SCRAM_SHA_512, options))


@pytest.mark.parametrize("secret", TROUBLE)
def test_characters_with_a_meaning_in_the_line_are_read_back_unchanged(
    read_by_kafka: Reader, secret: str
) -> None:
    options = {"username": "ada", "password": f"a{secret}b"}

    assert options == read_by_kafka(jaas(Mechanism.PLAIN, options))


@pytest.mark.parametrize(
    "quoted",
    [
        lambda secret: secret,
        lambda secret: f"'{secret}'",
        lambda secret: f'"{secret}"',
        lambda secret: '"' + secret.replace('"', '\\"') + '"',
        lambda secret: '"' + secret.replace('"', '\\"').replace("\\", "\\\\") + '"',
    ],
    ids=["bare", "single quotes", "no escapes", "backslash as it is", "escaped twice"],
)
def test_another_way_of_quoting_would_be_seen(
    read_by_kafka: Reader, quoted: Callable[[str], str]
) -> None:
    def comes_back(secret: str) -> bool:
        line = (
            f"org.apache.kafka.common.security.plain.PlainLoginModule required p={quoted(secret)};"
        )
        try:
            return {"p": secret} == read_by_kafka(line)
        except Exception:  # Java's, of many kinds
            return False

    assert not all(comes_back(f"a{secret}b") for secret in TROUBLE)
