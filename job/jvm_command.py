"""The parts of a command that starts a JVM with Spark's classes."""

from pathlib import Path

from job.installation.folders import spark_jars
from job.installation.jars import check_job_jars
from job.installation.java import java_home
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
# jars (job/class_archive.py).
CLASS_ARCHIVE = "classes.jsa"


def class_path_of(jars: Path) -> list[str]:
    """`jars`: the folder with the jars of the job. Java uses the class archive only if the class
    path begins as when the archive was created.

    Raises ModuleNotFoundError without PySpark, and SetupError without Java or the right jars.
    """
    of_spark = spark_jars()
    java()  # without it, the jars are not missing first
    check_job_jars(jars)
    return [f"{jars}/*", f"{of_spark}/*", str(jars / JAVA_JAR)]


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


def java() -> str:
    return str(java_home() / "bin" / "java")
