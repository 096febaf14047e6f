"""Questions about SQL that the job's own JVM answers."""

import json
from collections.abc import Mapping
from typing import Any

from pyspark.sql import SparkSession

from job.errors import SetupError
from job.java_jar import JARS_REMEDY, JAVA_JAR
from job.jvm_class import jvm_class
from job.sql.questions import SqlQuestions


def answer(jvm: Any, question: Mapping[str, Any]) -> Mapping[str, Any]:
    """The answer of SqlWorker.java (job/sql/worker.py) in a JVM of Py4J."""
    try:
        text = jvm_class(jvm, "streamjoin.SqlWorker").answer(json.dumps(question))
    except TypeError as error:  # Py4J takes the name of a missing class for a package
        raise SetupError(f"{JAVA_JAR} is not of this version. {JARS_REMEDY}") from error
    read: dict[str, Any] = json.loads(text)
    return read


def sql_of(spark: SparkSession) -> SqlQuestions:
    return SqlQuestions(lambda question: answer(spark._jvm, question))
