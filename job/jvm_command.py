"""The parts of a command that starts a JVM with Spark's classes."""

import os
import shutil
from importlib.util import find_spec
from pathlib import Path

from job.errors import SetupError
from job.java_jar import JAVA_JAR

_OPENED = (
    "java.base/java.lang", "java.base/java.lang.invoke", "java.base/java.lang.reflect",
    "java.base/java.io", "java.base/java.net", "java.base/java.nio", "java.base/java.util",
    "java.base/java.util.concurrent", "java.base/java.util.concurrent.atomic",
    "java.base/jdk.internal.ref", "java.base/sun.nio.ch", "java.base/sun.nio.cs",
    "java.base/sun.security.action", "java.base/sun.util.calendar",
    "java.security.jgss/sun.security.krb5",
)  # fmt: skip

# Options that spark-submit adds (org.apache.spark.launcher.JavaModuleOptions), without the
# incubating vector module, for which Java prints a warning at each start.
JAVA_OPTIONS = (
    "-XX:+IgnoreUnrecognizedVMOptions",
    *(f"--add-opens={package}=ALL-UNNAMED" for package in _OPENED),
    "-Dio.netty.tryReflectionSetAccessible=true",
    "-Dio.netty.allocator.type=pooled",
    "-Dio.netty.handler.ssl.defaultEndpointVerificationAlgorithm=NONE",
    # Required by Arrow from Java 24 on.
    "--sun-misc-unsafe-memory-access=allow",
    "--enable-native-access=ALL-UNNAMED",
)

# Optional file next to the jars: the classes of a join, mapped into memory instead of read from
# jars (deploy/local/class_archive.py).
CLASS_ARCHIVE = "classes.jsa"


def class_path_of(jars: Path) -> list[str]:
    """`jars`: the folder with the jars of the job. Java uses the class archive only if the class
    path begins as when the archive was created."""
    return [f"{jars}/*", f"{spark_jars()}/*", str(jars / JAVA_JAR)]


def class_archive_of(jars: Path) -> list[str]:
    """Options for the class archive. A JVM of another version or with other jars ignores the
    archive; the options disable its warnings."""
    archive = jars / CLASS_ARCHIVE
    if not archive.exists():
        return []
    disabled = ("cds", "cds+dynamic", "class+path")
    return [
        f"-XX:SharedArchiveFile={archive}",
        # At its own address. At a random one, the default, a JVM first rewrites the archive.
        *("-XX:+UnlockDiagnosticVMOptions", "-XX:ArchiveRelocationMode=0"),
        *(f"-Xlog:{tag}=off" for tag in disabled),
    ]


def spark_jars() -> Path:
    """The folder with the jars of PySpark and Hadoop. Does not import PySpark."""
    pyspark = find_spec("pyspark")
    if pyspark is None or pyspark.origin is None:
        raise ModuleNotFoundError("No module named 'pyspark'", name="pyspark")
    return Path(pyspark.origin).parent / "jars"


def java() -> str:
    home = os.environ.get("JAVA_HOME")
    java = f"{home}/bin/java" if home else shutil.which("java")
    if java is None or not Path(java).exists():
        raise SetupError(
            "no Java found: install a Java runtime 17 or later "
            "(Debian: apt-get install openjdk-17-jre-headless) or set JAVA_HOME"
        )
    return java
