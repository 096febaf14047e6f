"""The text of an error by which Spark recognizes a stopped query."""

import traceback

from job.spark.stopped_query import short_error
from tests.java_error import JavaError


def test_text_has_the_names_and_messages_of_all_causes_without_their_stack_traces() -> None:
    frames = "\n".join(f"\tat org.apache.spark.A{n}.call(A.scala:{n})" for n in range(900))
    text = (
        f"An error occurred while calling o7.save.\n: org.apache.spark.SparkException: {'x' * 999}"
        f"\n{frames}\nCaused by: java.lang.InterruptedException\n{frames}"
    )

    shown = "".join(traceback.format_exception(short_error(JavaError(text))))

    assert shown.startswith("py4j.protocol.Py4JJavaError: An error occurred while calling o7.save.")
    assert ": org.apache.spark.SparkException: xxx" in shown
    assert "Caused by: java.lang.InterruptedException" in shown
    assert len(shown) < 1_000
