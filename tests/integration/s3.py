"""A server that speaks S3: versitygw, which keeps each object as a file."""

import os
import re
import subprocess
from collections import Counter
from pathlib import Path
from types import TracebackType
from typing import Self

from deploy.local.ports import HOST, answers, free_ports
from deploy.local.processes import last_lines, start_child, stop_child
from job.installation.jars import JarSet, fetch, jar_folder
from job.java_jar import JAVA_JAR
from tests.polling import wait_until
from tests.programs import program

# Next to Kafka's, and below the ephemeral ports of Linux (deploy/local/kafka.py).
PORTS = range(31_000, 32_000)
START_SECONDS = 60.0
STOP_SECONDS = 20.0
BUCKET = "checkpoints"
_HOW = "go install github.com/versity/versitygw/cmd/versitygw@v1.8.0"
_KEY, _SECRET = "key-of-the-tests", "secret-of-the-tests"
_SETTINGS = """<configuration>
  <property><name>fs.s3a.endpoint</name><value>http://{host}:{port}</value></property>
  <property><name>fs.s3a.endpoint.region</name><value>us-east-1</value></property>
  <property><name>fs.s3a.path.style.access</name><value>true</value></property>
</configuration>
"""


class S3:
    """`with S3(folder) as s3:` has one bucket; skips the test if the server is not installed."""

    def __init__(self, folder: Path) -> None:
        self._program = program("versitygw", remedy=_HOW)
        self._folder = folder
        [self._port] = free_ports(PORTS, 1)
        self._child: subprocess.Popen[bytes] | None = None
        self._objects = folder / "objects"
        (self._objects / BUCKET).mkdir(parents=True)
        self._asked = folder / "access.log"
        self._attributes = folder / "attributes"
        self._attributes.mkdir()

    def __enter__(self) -> Self:
        log = self._folder / "s3.log"
        place = f"{HOST}:{self._port}"
        # Attributes in files: not every file system below a temporary folder supports extended
        # attributes.
        backend = ["posix", "--sidecar", self._attributes, self._objects]
        self._child = start_child(
            [self._program, "--quiet", "--access-log", self._asked, "--port", place, *backend],
            log=log,
            environment={
                **os.environ,
                "ROOT_ACCESS_KEY_ID": _KEY,
                "ROOT_SECRET_ACCESS_KEY": _SECRET,
            },
        )

        def is_up() -> bool:
            assert self._child is not None
            assert self._child.poll() is None, f"it has ended: {last_lines(log)}"
            return answers(self._port)

        wait_until(is_up, START_SECONDS, "the S3 server is up")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._child is not None
        stop_child(self._child, grace_seconds=STOP_SECONDS)

    @property
    def url(self) -> str:
        return f"s3a://{BUCKET}"

    def requests(self) -> Counter[str]:
        """How often each operation was requested, by S3's name of it."""
        return Counter(re.findall(r" s3_(\w+) ", self._asked.read_text()))

    @property
    def environment(self) -> dict[str, str]:
        """The settings of a job for this server, as in docs/checkpoint-stores.md."""
        settings = self._folder / "settings"
        settings.mkdir(exist_ok=True)
        (settings / "core-site.xml").write_text(_SETTINGS.format(host=HOST, port=self._port))
        return {
            "STREAMJOIN_JARS": str(self._jars()),
            "HADOOP_CONF_DIR": str(settings),
            "AWS_ACCESS_KEY_ID": _KEY,
            "AWS_SECRET_ACCESS_KEY": _SECRET,
        }

    def _jars(self) -> Path:
        """The jars of the job and S3's client in one folder, as docs/checkpoint-stores.md says."""
        fetch("s3")
        together = self._folder / "jars"
        together.mkdir(exist_ok=True)
        sets: tuple[JarSet, ...] = ("spark", "s3")
        linked = [jar for jar_set in sets for jar in jar_folder(jar_set).glob("*.jar")]
        for path in (*linked, jar_folder("spark") / JAVA_JAR.parent):
            link = together / path.name
            if not link.exists():
                link.symlink_to(path)
        return together
