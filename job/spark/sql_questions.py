"""Questions about SQL that the job's own JVM answers."""

import json
from collections.abc import Mapping
from functools import lru_cache
from queue import Empty, Queue
from threading import Thread
from typing import Any

from pyspark.sql import SparkSession

from job.errors import SetupError
from job.installation.clone import JARS_REMEDY
from job.java_jar import JAVA_JAR
from job.jvm_class import jvm_class
from job.sql.questions import SqlQuestions
from job.sql.rows import SqlRows

SECONDS_MAX = 120.0
"""For an answer. On a quick machine the first one takes two seconds, the others milliseconds."""


def answer(jvm: Any, question: Mapping[str, Any], seconds: float = SECONDS_MAX) -> dict[str, Any]:
    """The answer of SqlWorker.java (job/sql/worker.py) in a JVM of Py4J.

    SetupError after `seconds`. The JVM cannot cancel the question, and answers no other one until
    this one ends.
    """
    answers: Queue[dict[str, Any] | Exception] = Queue()
    Thread(target=_ask, args=(jvm, question, answers), daemon=True, name="sql").start()
    try:
        answer = answers.get(timeout=seconds)
    except Empty:
        raise SetupError(
            f"Spark needed more than {seconds:.0f} s for an expression of the spec: simplify the "
            "one that `streamjoin validate` names"
        ) from None
    if isinstance(answer, Exception):
        raise answer
    return answer


def _ask(
    jvm: Any, question: Mapping[str, Any], answers: "Queue[dict[str, Any] | Exception]"
) -> None:
    try:
        answers.put(json.loads(jvm_class(jvm, "streamjoin.SqlWorker").answer(json.dumps(question))))
    except TypeError:  # Py4J takes the name of a missing class for a package
        answers.put(SetupError(f"{JAVA_JAR} is not of this version. {JARS_REMEDY}"))
    except Exception as error:
        answers.put(error)


@lru_cache(maxsize=1)
def rows_of(spark: SparkSession) -> SqlRows:
    """Cached, so that a program is analyzed once."""
    return SqlRows(lambda question: answer(spark._jvm, question))


def sql_of(spark: SparkSession) -> SqlQuestions:
    return SqlQuestions(lambda question: answer(spark._jvm, question))
