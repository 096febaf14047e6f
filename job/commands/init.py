"""`streamjoin init`."""

import os
from pathlib import Path
from typing import Annotated

import typer

from job.commands.spec_file import report_errors, sql_worker
from job.spec.join_conditions import JoinType
from job.sql.questions import SqlQuestions
from job.sql.rows import SqlRows


def init(
    spec: Annotated[Path, typer.Argument(metavar="SPEC", help="File to write.")],
    bootstrap_servers: Annotated[
        str | None,
        typer.Option(
            "--bootstrap-servers", "--bootstrap-server", metavar="HOST:PORT", help="Kafka brokers."
        ),
    ] = None,
    security: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="YAML with the fields of kafka.security: TLS and login."),
    ] = None,
    schema_registry: Annotated[
        str | None,
        typer.Option(
            metavar="URL|FILE",
            help="For Avro and Protobuf: the registry, or YAML with the fields of schema_registry.",
        ),
    ] = None,
    left: Annotated[str | None, typer.Option(metavar="TOPIC", help="Left topic.")] = None,
    right: Annotated[str | None, typer.Option(metavar="TOPIC", help="Right topic.")] = None,
    left_key: Annotated[
        str | None,
        typer.Option(metavar="SQL", help="Key: columns or expressions, separated by commas."),
    ] = None,
    right_key: Annotated[
        str | None,
        typer.Option(metavar="SQL", help="Paired with those of --left-key in order."),
    ] = None,
    left_event_time: Annotated[
        str | None, typer.Option(metavar="SQL", help="Event time, as in a spec.")
    ] = None,
    right_event_time: Annotated[str | None, typer.Option(metavar="SQL")] = None,
    join_type: Annotated[
        JoinType | None,
        typer.Option("--type", help="Kind of join; inner without prompts."),
    ] = None,
    name: Annotated[str | None, typer.Option(help="Name of the join.")] = None,
    output: Annotated[str | None, typer.Option(metavar="TOPIC", help="Output topic.")] = None,
    prompts: Annotated[
        bool, typer.Option(help="Prompt for what no option sets; otherwise use the proposals.")
    ] = True,
) -> None:
    """Propose a spec for two topics, from a sample of their records."""
    from job.proposal.dialog import Options, write_spec
    from job.proposal.observed import Observer
    from job.proposal.prompts import ProposalError, Question

    def prompt(question: Question) -> str:
        if prompts:
            return _input(question)
        if question.default is None:
            missing = f"{question.text}: there is no proposal; set {question.option}"
            raise ProposalError(question.reason or missing)
        return question.default

    def _input(question: Question) -> str:
        """Text that is not empty."""
        if question.reason is not None:
            typer.echo(question.reason)
        default = question.default
        while not (text := _typed(question.text, default).strip()):
            typer.echo(f"There is no proposal for this: type it, or set {question.option}.")
        return text

    def _typed(text: str, default: str | None) -> str:
        has_default = default is not None
        return str(typer.prompt(text, default=default or "", show_default=has_default))

    options = Options(
        bootstrap_servers=bootstrap_servers,
        security=security,
        schema_registry=schema_registry,
        left=left,
        right=right,
        left_key=left_key,
        right_key=right_key,
        left_event_time=left_event_time,
        right_event_time=right_event_time,
        join_type=join_type,
        name=name,
        output=output,
    )
    with report_errors(spec), sql_worker() as worker:
        observer = Observer(os.environ, SqlQuestions(worker.ask), SqlRows(worker.ask))
        write_spec(spec, options, prompt, typer.echo, observer)
