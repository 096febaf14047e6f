"""Keeps back results that the old query has written before a change.

During the replay (job/replay/replay.py) it keeps back all results and dead letters of a batch.
After the replay the dataflow drops and counts the unmatched rows that the old query has emitted.
"""

from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

from job.checkpoint.checkpoint import Checkpoint
from job.dataflow.written import OUTPUT
from job.errors import CheckpointError
from job.replay.replay import Replay, ReplayPhase
from job.spark.observed_metrics import batch_metrics


class KeptBack:
    def __init__(self, checkpoint: Checkpoint, replay: Replay | None) -> None:
        """`replay` None: the query replaces no other one."""
        self.has_whole_batch = False
        """Whether all results of the current batch are kept back."""
        self._checkpoint = checkpoint
        self._replay = replay

    def to_deliver(self, records: DataFrame, batch_id: int) -> DataFrame:
        """The records of the current batch that are delivered: all or none."""
        self.has_whole_batch = self._contains(batch_id)
        # Spark cannot evaluate this filter before the execution. With `false` as the filter, Spark
        # would not execute the join.
        return records.where("spark_partition_id() < 0") if self.has_whole_batch else records

    def results(self, query: StreamingQuery) -> int:
        """The number of results of the current batch, which are kept back."""
        results: int = batch_metrics(query, OUTPUT).get("records", 0)
        return results

    def _contains(self, batch_id: int) -> bool:
        if self._replay is None:
            return False
        batch = self._checkpoint.batch(batch_id)
        assert batch is not None, "Spark writes the offset log before it begins the batch"
        if self._replay.keeps_back(batch):
            return True
        if self._replay.phase(self._checkpoint.offsets) is not ReplayPhase.OVER:
            raise CheckpointError(
                f"batch {batch_id} reads beyond the cut before the replay has ended, so its "
                "results could repeat those of the old query. None of them is written. Undo the "
                "change with `streamjoin change OLD_SPEC NEW_SPEC --undo`, then repeat it with "
                "another `checkpoint`"
            )
        self._replay = None  # All later batches are after the cut.
        return False
