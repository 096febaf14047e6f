"""A real HDFS: one NameNode and one DataNode of Hadoop, each a process, their data in a folder."""

import json
import subprocess
import urllib.request
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from deploy.local.kafka import LOG_SETTINGS
from deploy.local.ports import HOST, free_ports
from deploy.local.processes import last_lines, start_child, stop_child
from job.installation.folders import spark_jars
from job.installation.jars import fetch, jar_folder
from job.installation.java import java_home
from tests.brokers import SHORT_LIVED
from tests.polling import wait_until

# Next to Kafka's, and below the ephemeral ports of Linux (deploy/local/kafka.py).
PORTS = range(30_000, 31_000)
# Both are up after 6 s on two idle cores.
START_SECONDS = 120.0
STOP_SECONDS = 20.0
ANSWER_SECONDS = 2.0

_SERVER = "org.apache.hadoop.hdfs.server"
_NAMENODE = f"{_SERVER}.namenode.NameNode"
_DATANODE = f"{_SERVER}.datanode.DataNode"
_STATE = "jmx?qry=Hadoop:service=NameNode,name=FSNamesystemState"


class Hdfs:
    """`with Hdfs(folder) as hdfs:`; its NameNode can be killed and started again."""

    def __init__(self, folder: Path) -> None:
        fetch("hdfs")
        self._folder = folder
        self._folder.mkdir(parents=True, exist_ok=True)
        self.port, self._web_port = free_ports(PORTS, 2)
        self._children: dict[str, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> Self:
        subprocess.run(
            self._java(_NAMENODE, "-format", "-nonInteractive"),
            capture_output=True,
            timeout=START_SECONDS,
            check=True,
        )
        self._start(_DATANODE)
        self.start_namenode()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for child in self._children.values():
            stop_child(child, grace_seconds=STOP_SECONDS)

    @property
    def url(self) -> str:
        return f"hdfs://{HOST}:{self.port}"

    def start_namenode(self) -> None:
        """Wait until files can be written: a NameNode first waits for its DataNode's blocks."""
        self._start(_NAMENODE)
        wait_until(self._can_be_written_to, START_SECONDS, f"HDFS is up; {self._logs()}")

    def kill_namenode(self) -> None:
        """Kill it, as a crash would."""
        child = self._children[_NAMENODE]
        child.kill()
        child.wait()

    def _can_be_written_to(self) -> bool:
        assert self._children[_NAMENODE].poll() is None, self._logs()
        with suppress(OSError, ValueError, IndexError):
            address = f"http://{HOST}:{self._web_port}/{_STATE}"
            with urllib.request.urlopen(address, timeout=ANSWER_SECONDS) as answer:
                [state] = json.load(answer)["beans"]
            return bool(state["FSState"] == "Operational" and state["NumLiveDataNodes"] == 1)
        return False

    def _start(self, main_class: str) -> None:
        self._children[main_class] = start_child(self._java(main_class), log=self._log)

    @property
    def _log(self) -> Path:
        return self._folder / "hdfs.log"

    def _logs(self) -> str:
        return f"{self._log} ends with:\n{last_lines(self._log)}"

    def _java(self, main_class: str, *arguments: str) -> list[str | Path]:
        # Spark's jars contain all that Hadoop needs, in the same version.
        return [
            java_home() / "bin" / "java",
            *("-Xmx256m", "-XX:+UseSerialGC", *SHORT_LIVED),
            f"-Dlog4j2.configurationFile={LOG_SETTINGS}",
            *("-cp", f"{jar_folder('hdfs')}/*:{spark_jars()}/*"),
            main_class,
            *(f"-D{name}={value}" for name, value in self._settings().items()),
            *arguments,
        ]

    def _settings(self) -> dict[str, object]:
        return {
            "fs.defaultFS": self.url,
            "dfs.namenode.name.dir": (self._folder / "name").as_uri(),
            "dfs.datanode.data.dir": (self._folder / "data").as_uri(),
            "dfs.namenode.http-address": f"{HOST}:{self._web_port}",
            **{
                f"dfs.datanode.{part}": f"{HOST}:0"
                for part in ("address", "http.address", "ipc.address")
            },
            "dfs.replication": 1,
            # By default a NameNode leaves safe mode without a DataNode, and 30 s after it has all
            # blocks.
            "dfs.namenode.safemode.min.datanodes": 1,
            "dfs.namenode.safemode.extension": 0,
            # How soon a DataNode reconnects to a NameNode.
            "dfs.heartbeat.interval": 1,
        }
