"""An error as Py4J raises it, without a JVM."""

from py4j.protocol import Py4JJavaError


class JavaError(Py4JJavaError):
    def __init__(self, text: str) -> None:
        """`text`: with the stack traces of all causes, as Py4J requests it from the JVM."""
        Exception.__init__(self)
        self._text = text

    def __str__(self) -> str:
        return self._text
