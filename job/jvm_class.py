"""A class of the JVM."""

from typing import Any


def jvm_class(jvm: Any, name: str) -> Any:
    """The class of this full name.

    For `jvm.a.b.C`, Py4J asks the JVM for `a` and for `a.b` first, and the JVM searches all jars
    for classes of these names.
    """
    return getattr(jvm, name)
