"""Settings of Hadoop that Spark sends to each task."""

import pytest
import structlog
from pyspark.sql import SparkSession

from job.plan.tuning import CHECKPOINT_CONF
from job.spark import hadoop_settings
from job.spark.hadoop_settings import trim_hadoop_conf

LOCAL_FILES = "fs.file.impl"


def test_defaults_of_yarn_and_mapreduce_are_dropped_and_nothing_else(spark: SparkSession) -> None:
    settings = spark.sparkContext._jsc.hadoopConfiguration()
    spark._jvm.java.lang.Class.forName("org.apache.hadoop.mapred.JobConf")  # which reads them
    settings.reloadConfiguration()
    before = sources(settings)

    trim_hadoop_conf(spark)
    after = sources(settings)
    dropped = {name: before[name] for name in before.keys() - after.keys()}
    # Spark sets the warehouse folder of Hive at the first access to its catalog.
    dropped.pop("hive.metastore.warehouse.dir", None)
    assert set(dropped.values()) == {"yarn-default.xml", "mapred-default.xml"}
    assert not set(dropped.values()) & {before.get(name) for name in after}
    assert len(after) < len(before) / 2


def test_origins_of_settings_are_removed(spark: SparkSession) -> None:
    spark._jsparkSession.sharedState()  # its first use adds a setting
    trim_hadoop_conf(spark)
    # As Spark's join copies them for each plan node.
    copied = spark._jsparkSession.sessionState().newHadoopConf()
    from_spark = {name for name, source in sources(copied).items() if source != "none"}
    assert from_spark
    assert not {name for name in from_spark if not name.startswith("spark.")}


def test_settings_of_spark_survive_a_reload_of_the_files(spark: SparkSession) -> None:
    trim_hadoop_conf(spark)
    settings = spark.sparkContext._jsc.hadoopConfiguration()
    expected = CHECKPOINT_CONF["file"][f"spark.hadoop.{LOCAL_FILES}"]
    assert settings.get(LOCAL_FILES) == expected
    settings.reloadConfiguration()
    assert settings.get(LOCAL_FILES) == expected


def sources(settings) -> dict[str, str]:
    """The names of all settings, each with the file or the program that it comes from."""
    entries = settings.iterator()
    names = []
    while entries.hasNext():
        names.append(entries.next().getKey())
    return {name: next(iter(settings.getPropertySources(name) or ["none"])) for name in names}


def test_all_settings_are_kept_where_spark_has_lost_the_hook(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> None:
        raise AttributeError("no such field")

    settings = spark.sparkContext._jsc.hadoopConfiguration()
    settings.set("streamjoin.kept", "yes")
    before = set(sources(settings))
    monkeypatch.setattr(hadoop_settings, "_forget_origins", fails)
    with structlog.testing.capture_logs() as logs:
        trim_hadoop_conf(spark)
        trim_hadoop_conf(spark)

    assert before == set(sources(settings))
    assert [("spark_hook_lost", "hadoop_settings")] == [(log["event"], log["hook"]) for log in logs]
