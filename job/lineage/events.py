"""The run events of a join, in the classes of OpenLineage's client. No network, no clock."""

from collections.abc import Iterable, Iterator
from datetime import datetime
from importlib.metadata import version

from openlineage.client.event_v2 import (
    InputDataset,
    Job,
    OutputDataset,
    Run,
    RunEvent,
    RunState,
    set_producer,
)
from openlineage.client.facet_v2 import (
    column_lineage_dataset,
    error_message_run,
    job_type_job,
    schema_dataset,
)
from openlineage.client.generated.base import RunFacet
from openlineage.client.naming.dataset import Kafka

from job.instants import utc_text
from job.lineage.columns import Source, sources_of_columns, sources_of_rows
from job.plan.plan import JoinPlan

PRODUCER = f"urn:streamjoin:{version('streamjoin')}"
_INDIRECT = {"JOIN", "FILTER"}


class RunEvents:
    """Events of the runs of one join."""

    def __init__(self, plan: JoinPlan, namespace: str) -> None:
        set_producer(PRODUCER)
        self._plan = plan
        self._namespace = namespace
        job_type = job_type_job.JobTypeJobFacet("STREAMING", "STREAMJOIN", jobType="QUERY")
        self._job = Job(namespace, plan.name, facets={"jobType": job_type})
        self._inputs = self._input_datasets()
        self._outputs = self._output_datasets()

    def of(self, plan: JoinPlan) -> "RunEvents":
        """The events of a run with the topics of `plan`, which include those of a topic_pattern."""
        return RunEvents(plan, self._namespace)

    def event(self, state: str, run_id: str, at: datetime, failure: str | None = None) -> RunEvent:
        """`state`: a name of RunState. `failure`: the message of a failed run."""
        facets: dict[str, RunFacet] = {}
        if failure is not None:
            facets["errorMessage"] = error_message_run.ErrorMessageRunFacet(failure, "Python")
        return RunEvent(
            eventTime=utc_text(at),
            producer=PRODUCER,
            run=Run(run_id, facets=facets),
            job=self._job,
            eventType=RunState[state],
            inputs=self._inputs,
            outputs=self._outputs,
        )

    def _input_datasets(self) -> list[InputDataset]:
        """One per topic: the sides of a self join share it."""
        columns: dict[str, dict[str, str]] = {}
        for side in (self._plan.left, self._plan.right):
            fields = {c.name: str(c.type) for c in (*side.schema.columns, *side.record_columns)}
            for topic in side.topics.names:
                columns.setdefault(topic, {}).update(fields)
        return [
            InputDataset(*self._named(topic), facets={"schema": _schema(fields.items())})
            for topic, fields in columns.items()
        ]

    def _output_datasets(self) -> list[OutputDataset]:
        output, dead_letter = self._plan.output, self._plan.dead_letter
        fields = [(name, str(value.type)) for name, value in output.columns.items()]
        facets = {"schema": _schema(fields), "columnLineage": self._column_lineage()}
        datasets = [OutputDataset(*self._named(output.topic), facets=facets)]
        if dead_letter is not None:
            datasets.append(OutputDataset(*self._named(dead_letter.topic)))
        return datasets

    def _column_lineage(self) -> column_lineage_dataset.ColumnLineageDatasetFacet:
        return column_lineage_dataset.ColumnLineageDatasetFacet(
            fields={
                name: column_lineage_dataset.Fields(list(self._input_fields(sources)))
                for name, sources in sources_of_columns(self._plan).items()
            },
            dataset=list(self._input_fields(sources_of_rows(self._plan))),
        )

    def _input_fields(
        self, sources: Iterable[Source]
    ) -> Iterator[column_lineage_dataset.InputField]:
        """The column of each source, in every topic of its side."""
        for source in sources:
            kind = "INDIRECT" if source.subtype in _INDIRECT else "DIRECT"
            change = column_lineage_dataset.Transformation(kind, source.subtype, masking=False)
            for topic in self._plan.side(source.side).topics.names:
                name = self._named(topic)
                yield column_lineage_dataset.InputField(*name, source.column, [change])

    def _named(self, topic: str) -> tuple[str, str]:
        """Namespace and name of a topic. The first bootstrap server names the cluster."""
        first = self._plan.bootstrap_servers.split(",")[0].strip()
        host, _, port = first.rpartition(":")
        naming = Kafka(host, port, topic)
        return naming.get_namespace(), naming.get_name()


def _schema(fields: Iterable[tuple[str, str]]) -> schema_dataset.SchemaDatasetFacet:
    return schema_dataset.SchemaDatasetFacet(
        [schema_dataset.SchemaDatasetFacetFields(name, kind) for name, kind in fields]
    )
