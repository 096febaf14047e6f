"""The Java classes of the job, compiled by `make setup`, in the JVM of a Spark session."""

from typing import Any

from pyspark.sql import SparkSession

from job.errors import SetupError
from job.installation.clone import JARS_REMEDY
from job.java_jar import JAVA_JAR, SOURCES, sources_checksum
from job.jvm_class import jvm_class

_PACKAGE = "streamjoin"


def check_classes(spark: SparkSession) -> None:
    """Raises SetupError if the Java classes of the job were built from other sources."""
    try:
        built_from = java_class(spark, "ProcessorJoin").sourcesChecksum()
    except TypeError as error:  # Py4J takes the name of a missing class for a package.
        raise SetupError(
            f"{JAVA_JAR}, with the Java classes of the job, is not on the class path. {JARS_REMEDY}"
        ) from error
    if built_from != sources_checksum():
        raise SetupError(
            f"{JAVA_JAR} was built from other sources than those in {_folders()}. {JARS_REMEDY}"
        )


def _folders() -> str:
    return " and ".join(str(folder) for folder in SOURCES)


def java_class(spark: SparkSession, name: str) -> Any:
    """A Java class of the job."""
    return jvm_class(spark._jvm, f"{_PACKAGE}.{name}")
