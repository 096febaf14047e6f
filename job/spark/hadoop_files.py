"""Hadoop's file systems with the settings of the session, and a rename that overwrites.

Private API of Spark 4.3.0 (SessionState.newHadoopConf), and reflection for a varargs method of
Hadoop: see the package docstring. The behaviour is tested by
tests/semantics/test_checkpoint_stores.py and tests/integration/test_hdfs.py.
"""

from typing import Any

from pyspark.sql import SparkSession

from job.jvm_class import jvm_class


def hadoop_path(spark: SparkSession, *parts: Any) -> Any:
    """An org.apache.hadoop.fs.Path."""
    jvm: Any = spark._jvm
    return jvm_class(jvm, "org.apache.hadoop.fs.Path")(*parts)


def file_system(spark: SparkSession, path: Any) -> Any:
    """The org.apache.hadoop.fs.FileSystem of a Path."""
    return path.getFileSystem(spark._jsparkSession.sessionState().newHadoopConf())


def read_text(spark: SparkSession, files: Any, path: Any) -> str | None:
    """Content of a file in UTF-8. None: the file does not exist."""
    if not files.exists(path):
        return None
    jvm: Any = spark._jvm
    stream = files.open(path)
    try:
        return str(jvm_class(jvm, "org.apache.commons.io.IOUtils").toString(stream, "UTF-8"))
    finally:
        stream.close()


def copy(spark: SparkSession, source: Any, path: Any, target: Any, target_path: Any) -> bool:
    """Copy a file or folder between two file systems; whether it succeeded."""
    jvm: Any = spark._jvm
    util = jvm_class(jvm, "org.apache.hadoop.fs.FileUtil")
    return bool(util.copy(source, path, target, target_path, False, source.getConf()))


def rename_over(spark: SparkSession, files: Any, path: Any, target: Any) -> None:
    """Rename a file, and replace `target` if it exists. FileSystem.rename() would not replace."""
    jvm: Any = spark._jvm
    context = jvm_class(jvm, "org.apache.hadoop.fs.FileContext").getFileContext(
        target.toUri(), files.getConf()
    )
    rename = jvm_class(jvm, "java.lang.Class").forName("org.apache.hadoop.fs.Options$Rename")
    options = jvm_class(jvm, "java.lang.reflect.Array").newInstance(rename, 1)
    options[0] = rename.getField("OVERWRITE").get(None)
    context.rename(path, target, options)
