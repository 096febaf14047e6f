"""The checkpoint's folder, on any file system Hadoop reaches.

    <checkpoint>/fingerprint.json     what it freezes, written before the first batch
    <checkpoint>/desired_state.json   whether the query should run, be paused or be stopped
    <checkpoint>/query/               Spark's own: offsets, commits, state

Spark wants its folder empty at the first start, hence the files beside it.
"""

import json
from collections.abc import Mapping
from typing import Any

from pyspark.sql import SparkSession

from job.errors import CheckpointError
from job.fingerprint import changes
from job.progress import QueryState

_FINGERPRINT = "fingerprint.json"
_DESIRED_STATE = "desired_state.json"
_DESIRABLE = {QueryState.RUNNING, QueryState.PAUSED, QueryState.STOPPED}


class Checkpoint:
    def __init__(self, spark: SparkSession, location: str) -> None:
        jvm = spark._jvm
        assert jvm is not None
        self._hadoop = jvm.org.apache.hadoop
        self._jvm = jvm
        self._root = self._hadoop.fs.Path(location)
        configuration = spark._jsparkSession.sessionState().newHadoopConf()
        self._files = self._root.getFileSystem(configuration)
        # Made absolute here, so that a later look at the log says where it was.
        self._root = self._files.makeQualified(self._root)

    @property
    def query_location(self) -> str:
        """Spark's checkpointLocation."""
        return str(self._path("query").toString())

    @property
    def fingerprint(self) -> Mapping[str, str] | None:
        """None where there is no checkpoint yet."""
        document = self._read(_FINGERPRINT)
        if document is None and self._files.exists(self._path("query")):
            raise CheckpointError(
                f"{self._root} holds a checkpoint but no {_FINGERPRINT}: what it was written for "
                "is unknown. Name another folder in `checkpoint`, or put the file back"
            )
        return document

    def claim(self, frozen: Mapping[str, str] | None, wanted: Mapping[str, str]) -> None:
        """Freeze `wanted` where nothing is `frozen` yet; otherwise refuse a spec that differs."""
        if frozen is None:
            self._write(_FINGERPRINT, wanted)
            return
        found = changes(frozen, wanted)
        if found:
            lines = [
                f"  {change.field}: frozen as {change.frozen}, the spec now says {change.wanted}"
                for change in found
            ]
            raise CheckpointError(
                f"the checkpoint {self._root} was begun with other settings:\n"
                + "\n".join(lines)
                + "\nPut the old values back to go on with it, or name another folder in "
                "`checkpoint` to begin anew (rows now waiting in state are then not joined)"
            )

    @property
    def desired_state(self) -> QueryState:
        document = self._read(_DESIRED_STATE)
        return QueryState(document["state"]) if document else QueryState.RUNNING

    @desired_state.setter
    def desired_state(self, state: QueryState) -> None:
        assert state in _DESIRABLE
        if self.desired_state is not state:
            self._write(_DESIRED_STATE, {"state": state.value})

    def _path(self, name: str) -> Any:
        return self._hadoop.fs.Path(self._root, name)

    def _read(self, name: str) -> dict[str, str] | None:
        path = self._path(name)
        if not self._files.exists(path):
            return None
        stream = self._files.open(path)
        try:
            text = self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8")
        finally:
            stream.close()
        try:
            document: dict[str, str] = json.loads(text)
        except ValueError as error:
            raise CheckpointError(f"{path.toString()} is damaged: {error}") from error
        return document

    def _write(self, name: str, document: Mapping[str, str]) -> None:
        """All of it or nothing: a crash in between leaves the old file."""
        temporary, path = self._path(f".{name}.tmp"), self._path(name)
        stream = self._files.create(temporary, True)
        try:
            stream.write(bytearray(json.dumps(document, indent=2).encode()))
            stream.hsync()
        finally:
            stream.close()
        context = self._hadoop.fs.FileContext.getFileContext(
            self._root.toUri(), self._files.getConf()
        )
        overwrite = self._jvm.java.lang.Class.forName("org.apache.hadoop.fs.Options$Rename")
        options = self._jvm.java.lang.reflect.Array.newInstance(overwrite, 1)
        options[0] = overwrite.getField("OVERWRITE").get(None)
        context.rename(temporary, path, options)
