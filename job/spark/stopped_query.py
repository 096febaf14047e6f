"""Python code that Spark calls while a query is stopped, and the errors by which Spark recognizes
that it is.

Spark has only the text of such an error. It searches the text for the class of an interruption,
with a regular expression that recurses at each character (StreamExecution.PROXY_ERROR of Spark
4.3.0): a text with the stack traces of all causes overflows the stack, and the stopped query fails.
"""

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from job.jvm_class import jvm_class

_INTERRUPTIONS = {
    "java.io.InterruptedIOException",
    "java.lang.InterruptedException",
    "java.nio.channels.ClosedByInterruptException",
}
_LINES_MAX, _CHARACTERS_MAX = 20, 300
_FRAME = "\tat "


def raise_if_interrupted(spark: SparkSession) -> None:
    """Call this at the begin of a batch, on the query's thread.

    A query can be stopped after it has planned a batch. Spark then interrupts its own thread, and
    begins the batch nevertheless (MicroBatchExecution.runBatch). It would submit the tasks and not
    wait for them: they would write results of a batch that the next start runs again.
    """
    try:
        jvm_class(spark._jvm, "java.lang.Thread").sleep(0)  # fails if the thread is interrupted
    except Py4JJavaError as error:
        raise short_error(error) from None


def is_interruption(error: Py4JJavaError) -> bool:
    """Whether the thread was interrupted, which fails no query: the next start runs the batch."""
    throwable = error.java_exception
    while (cause := throwable.getCause()) is not None:
        throwable = cause
    return throwable.getClass().getName() in _INTERRUPTIONS


def short_error(error: Py4JJavaError) -> Exception:
    """The error to raise in place of `error`: its text has the classes and messages of all causes,
    without their stack traces.

    In a traceback it has the name of Py4J's error, with which Spark's expression begins.
    """
    lines = [line for line in str(error).splitlines() if not line.startswith(_FRAME)]
    text = "\n".join(line[:_CHARACTERS_MAX] for line in lines[:_LINES_MAX])
    named: type[Exception] = type(
        Py4JJavaError.__name__, (Exception,), {"__module__": Py4JJavaError.__module__}
    )
    return named(text)
