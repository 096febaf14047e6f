"""`streamjoin topics …`."""

from typing import Annotated

import typer

from job.commands.output import AsJson, print_facts, warn_on_stderr
from job.commands.spec_file import SpecFile, create_plan, read_spec, report_errors

topic_commands = typer.Typer(
    help="Create the topics of a spec.", no_args_is_help=True, callback=warn_on_stderr
)


@topic_commands.command("create", epilog="Example: streamjoin topics create join.yaml")
def create_topics(
    spec: SpecFile,
    inputs: Annotated[
        bool, typer.Option("--inputs", help="Also create the missing inputs.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Create the missing topics that the join writes: output, dead letters and commit topic.

    A missing input is an error. New topics have the broker's default number of partitions, the
    commit topic one more than the job has state partitions (STREAMJOIN_STATE_PARTITIONS).
    """
    from job.delivery.commit_topic import new_commit_topic
    from job.kafka.topics import create_missing_topics

    with report_errors(spec):
        made = create_plan(read_spec(spec))
        topics = create_missing_topics(
            made,
            new_commit_topic(made),
            lambda text: typer.echo(text, err=True),
            with_inputs=inputs,
        )
    width = max(len(topic.role) for topic in topics)
    lines = (
        f"{'created' if topic.is_new else 'exists '}  {topic.role:<{width}}  {topic.name}"
        for topic in topics
    )
    print_facts(topics, lines, as_json=as_json)
