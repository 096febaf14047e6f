"""The `streamjoin` command: its parts wired together, and nothing else."""

import json
import logging
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Annotated, Literal

import structlog
import typer

from job.errors import SpecError, StreamjoinError
from job.explain import explained
from job.expressions import SIDES, Side
from job.fingerprint import fingerprint
from job.plan import JoinPlan
from job.planner import join_plan
from job.semantics.cli import simulation_lines, spec_test_lines
from job.semantics.spec_tests import SpecTest
from job.settings import JobSettings
from job.spec import JoinSpec, spec_from_yaml, spec_json_schema

app = typer.Typer(
    help="Joins two Kafka topics as streams, and says what the join will do.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
SpecFile = Annotated[Path, typer.Argument(metavar="SPEC", help="The join's YAML file.")]


@app.command()
def validate(spec: SpecFile) -> None:
    """Say everything that is wrong with a spec; exit 2 where anything is."""
    with errors_reported(spec):
        planned(read(spec))
    typer.echo(f"{spec}: fine")


@app.command()
def plan(
    spec: SpecFile,
    as_json: Annotated[bool, typer.Option("--json", help="For programs.")] = False,
) -> None:
    """Explain what a join will do: no broker, no cluster."""
    with errors_reported(spec):
        made = planned(read(spec))
    typer.echo(json.dumps(facts(made), indent=2) if as_json else explained(made), nl=as_json)


@app.command()
def simulate(
    spec: SpecFile,
    left: Annotated[Path, typer.Option(help="JSON lines: one left value a line.")],
    right: Annotated[Path, typer.Option(help="JSON lines: one right value a line.")],
    batch_size: Annotated[int, typer.Option(min=1, help="Records a side and batch.")] = 1_000,
    trigger: Annotated[
        str | None,
        typer.Option(metavar="DURATION", help="Batches by the records' timestamps instead."),
    ] = None,
    explain: Annotated[
        str | None, typer.Option(metavar="KEY", help="Tell the story of one key.")
    ] = None,
    output_format: Annotated[
        Literal["text", "jsonl"], typer.Option("--format", help="jsonl: the output values alone.")
    ] = "text",
) -> None:
    """Say what would come out of two files, batch by batch: no Spark, no broker."""
    with errors_reported(spec):
        lines = simulation_lines(
            planned(read(spec)),
            left,
            right,
            batch_size=batch_size,
            trigger=trigger,
            explain=explain,
            as_jsonl=output_format == "jsonl",
        )
        sys.stdout.writelines(f"{line}\n" for line in lines)


@app.command()
def test(spec: SpecFile) -> None:
    """Run the tests written in the spec; exit 1 where one fails."""
    with errors_reported(spec):
        document = read(spec)
        tests = [SpecTest(**written.model_dump()) for written in document.tests]
        if not tests:
            raise StreamjoinError("has no `tests:`")
        lines, passed = spec_test_lines(planned(document), tests)
    sys.stdout.writelines(f"{line}\n" for line in lines)
    raise typer.Exit(0 if passed else 1)


@app.command()
def schema() -> None:
    """Print the JSON Schema of a spec, for editors."""
    typer.echo(json.dumps(spec_json_schema(), indent=2))


@app.command()
def run(spec: SpecFile) -> None:
    """Run the join until SIGTERM or Ctrl-C."""
    with errors_reported(spec):
        made = planned(read(spec))
        failed = served(made, JobSettings())
    raise typer.Exit(1 if failed else 0)


def served(made: JoinPlan, settings: JobSettings) -> bool:
    """Run engine and control socket until a signal ends them; whether the query had failed."""
    # Imported here: no other command is to wait for PySpark.
    from job.control import control_socket
    from job.engine import Engine
    from job.progress import QueryState

    log_to_stderr()
    engine = Engine(made, settings)
    with control_socket(settings.socket, engine), on_signals(engine.end):
        return engine.run() is QueryState.FAILED


def read(path: Path) -> JoinSpec:
    try:
        text = path.read_text()
    except OSError as error:
        raise StreamjoinError(f"cannot be read: {error.strerror}") from error
    return spec_from_yaml(text, os.environ)


def planned(spec: JoinSpec) -> JoinPlan:
    partitions = JobSettings().state_partitions or os.cpu_count() or 1
    return join_plan(spec, state_partitions=partitions)


def facts(made: JoinPlan) -> dict[str, object]:
    """The plan for programs."""

    def retention_seconds(side: Side) -> float | None:
        retention = made.side(side).retention
        return None if retention is None else retention.total_seconds()

    return {
        "name": made.name,
        "join_type": made.join_type.value,
        "on": made.on,
        "retention_seconds": {side: retention_seconds(side) for side in SIDES},
        "output_columns": {name: column.text for name, column in made.output.columns.items()},
        "spark_conf": dict(made.spark_conf),
        "source_options": {side: dict(made.side(side).source_options) for side in SIDES},
        "sink_options": dict(made.output.sink_options),
        "frozen": fingerprint(made),
    }


@contextmanager
def errors_reported(spec: Path) -> Iterator[None]:
    """A user's mistake is told in words, never as a stack trace."""
    try:
        yield
    except SpecError as error:
        count = len(error.problems)
        typer.echo(f"{spec}: {count} problem{'s' if count > 1 else ''}", err=True)
        for problem in error.problems:
            typer.echo(f"  {problem}", err=True)
        raise typer.Exit(error.exit_code) from None
    except StreamjoinError as error:
        typer.echo(f"{spec}: {error}", err=True)
        raise typer.Exit(error.exit_code) from None


@contextmanager
def on_signals(end: Callable[[], None]) -> Iterator[None]:
    """SIGTERM and Ctrl-C call `end`; the handlers before are put back."""

    def handle(number: int, frame: FrameType | None) -> None:
        del number, frame
        end()

    before = {number: signal.signal(number, handle) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def log_to_stderr() -> None:
    """JSON lines for machines, plain ones on a terminal."""
    terminal = sys.stderr.isatty()
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            structlog.dev.ConsoleRenderer() if terminal else structlog.processors.JSONRenderer(),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )


def main() -> None:
    app()


if __name__ == "__main__":
    main()
