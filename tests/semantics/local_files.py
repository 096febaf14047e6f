"""Spark's checkpoint files on a local disk without a process forked for each of them.

Without its native library, which PySpark does not bring, Hadoop runs the program `chmod` for every
file it makes and `readlink` for every rename: some seventy processes per micro-batch of a join,
more time than all else of it. What the files hold and in which order they appear is unchanged.
"""

from typing import Any

from pyspark.sql import SparkSession

FILE_MANAGER = (
    "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
)
"""Renames without asking `readlink`, which the default for local files does."""

_NAME = "FilesWithDefaultPermissions"
_SOURCE = f"""
public class {_NAME} extends org.apache.hadoop.fs.RawLocalFileSystem {{
  public void setPermission(
    org.apache.hadoop.fs.Path file, org.apache.hadoop.fs.permission.FsPermission permission) {{ }}
}}
"""


def leave_permissions_alone(spark: SparkSession) -> None:
    """For all `file:` paths of this JVM, from now on. Compiled by the compiler Spark brings."""
    jvm = spark._jvm
    compiler = jvm.org.codehaus.janino.SimpleCompiler()
    compiler.setParentClassLoader(jvm.java.lang.Thread.currentThread().getContextClassLoader())
    compiler.cook(_SOURCE)
    made = compiler.getClassLoader().loadClass(_NAME).getConstructor(_array(spark, "Class"))
    files = jvm.org.apache.hadoop.fs.LocalFileSystem(made.newInstance(_array(spark, "Object")))
    root, conf = jvm.java.net.URI("file:///"), spark._jsc.hadoopConfiguration()
    files.initialize(root, conf)
    file_system = jvm.java.lang.Class.forName("org.apache.hadoop.fs.FileSystem")
    methods = {method.getName(): method for method in file_system.getDeclaredMethods()}
    replace = methods["addFileSystemForTesting"]
    replace.setAccessible(True)
    replace.invoke(None, _array(spark, "Object", root, conf, files))


def _array(spark: SparkSession, kind: str, *values: object) -> Any:
    array = spark._sc._gateway.new_array(getattr(spark._jvm.java.lang, kind), len(values))
    for index, value in enumerate(values):
        array[index] = value
    return array
