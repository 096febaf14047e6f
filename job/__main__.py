"""The `streamjoin` command: its parts wired together, and nothing else."""

import json
import logging
import os
import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Literal

import structlog
import typer

from job.errors import RegistryError, SecurityError, SpecError, StreamjoinError
from job.join_spec.model import JoinSpec, spec_from_yaml, spec_json_schema
from job.plan.explain import explained, facts
from job.plan.means import means_of
from job.plan.model import JoinPlan
from job.plan.planner import join_plan
from job.redaction import Redaction
from job.semantics.cli import simulation_lines, spec_test_lines
from job.semantics.spec_tests import SpecTest
from job.settings import JobSettings

if TYPE_CHECKING:
    from job.formats.schemas import ReaderSchema
    from job.join_spec.expressions import Side
    from job.spark.session import Jvm

app = typer.Typer(
    help="Joins two Kafka topics as streams, and says what the join will do.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
care = typer.Typer(help="Care for a stopped job's checkpoint.", no_args_is_help=True)
app.add_typer(care, name="checkpoint")
dead = typer.Typer(
    help="What the join could not take: look, and put it back.", no_args_is_help=True
)
app.add_typer(dead, name="dead-letters")
SpecFile = Annotated[Path, typer.Argument(metavar="SPEC", help="The join's YAML file.")]

Location = Annotated[str, typer.Argument(help="A folder, on any file system Hadoop reaches.")]

LetterSide = Annotated[
    Literal["left", "right", "output"] | None, typer.Option(help="Those of one side.")
]
LetterReason = Annotated[
    str | None, typer.Option(metavar="REASON", help="Those with one reason, e.g. malformed_json.")
]


@app.command()
def validate(spec: SpecFile) -> None:
    """Say everything that is wrong with a spec; exit 2 where anything is."""
    with errors_reported(spec):
        planned(read(spec), asks="may")
    typer.echo(f"{spec}: fine")


@app.command()
def plan(
    spec: SpecFile,
    as_json: Annotated[bool, typer.Option("--json", help="For programs.")] = False,
) -> None:
    """Explain what a join will do: no broker, no cluster; a schema registry, where it answers."""
    with errors_reported(spec):
        made = planned(read(spec), asks="may")
        means = means_of(JobSettings(), made, cores=os.cpu_count() or 1)
    told = json.dumps(facts(made, means), indent=2) if as_json else explained(made, means)
    typer.echo(told, nl=as_json)


@app.command()
def simulate(
    spec: SpecFile,
    left: Annotated[Path, typer.Option(help="JSON lines: one left value a line.")],
    right: Annotated[Path, typer.Option(help="JSON lines: one right value a line.")],
    batch_size: Annotated[
        int,
        typer.Option(
            min=1,
            help="Records a side and batch, of each partition its share of what is left to read.",
        ),
    ] = 1_000,
    trigger: Annotated[
        str | None,
        typer.Option(
            metavar="DURATION",
            help="Batches by the records' timestamps instead: a record arrives in its batch.",
        ),
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
def state(
    spec: SpecFile,
    key: Annotated[
        list[str] | None, typer.Option(help="A part of the key, in the spec's order; may repeat.")
    ] = None,
    side: Annotated[Literal["left", "right"], typer.Option(help="Whose rows.")] = "left",
) -> None:
    """Show what a stopped job's checkpoint holds: the rows of a key, or how many rows."""
    from job.care import cli

    with errors_reported(spec):
        lines = cli.state(planned(read(spec)), JobSettings(), side, key or [])
    sys.stdout.writelines(f"{line}\n" for line in lines)


@care.command("verify")
def verify_checkpoint(spec: SpecFile) -> None:
    """Read all of a stopped job's checkpoint and say whether it is whole; exit 1 where not."""
    from job.care import cli

    with errors_reported(spec):
        lines, is_well = cli.verify(planned(read(spec)), JobSettings())
    sys.stdout.writelines(f"{line}\n" for line in lines)
    raise typer.Exit(0 if is_well else 1)


@care.command("backup")
def backup_checkpoint(spec: SpecFile, target: Location) -> None:
    """Copy a stopped job's checkpoint to a new folder."""
    from job.care import cli

    with errors_reported(spec):
        lines = cli.backup(planned(read(spec)), JobSettings(), target)
    sys.stdout.writelines(f"{line}\n" for line in lines)


@care.command("restore")
def restore_checkpoint(
    spec: SpecFile,
    source: Location,
    results_again: Annotated[
        bool, typer.Option(help="Go on from an older copy: results that are out come again.")
    ] = False,
) -> None:
    """Put a backup in the checkpoint's place; what is there now is kept aside."""
    from job.care import cli

    with errors_reported(spec):
        lines = cli.restore(planned(read(spec)), JobSettings(), source, results_again=results_again)
    sys.stdout.writelines(f"{line}\n" for line in lines)


@care.command("repair")
def repair_checkpoint(spec: SpecFile) -> None:
    """Put aside what a power cut left half written, where that is safe; a start does so, too."""
    from job.care import cli

    with errors_reported(spec):
        lines = cli.repair(planned(read(spec)), JobSettings())
    sys.stdout.writelines(f"{line}\n" for line in lines)


@care.command("repartition")
def repartition_checkpoint(spec: SpecFile) -> None:
    """Change the number of state partitions: refused, with the reason."""
    from job.care import cli

    with errors_reported(spec):
        cli.repartition()


@dead.command("list")
def list_dead_letters(
    spec: SpecFile,
    side: LetterSide = None,
    reason: LetterReason = None,
    limit: Annotated[int | None, typer.Option(min=1, help="No more than so many.")] = None,
) -> None:
    """List the dead letters that were not put back, and why each is one."""
    from job.dead_letters import cli

    with errors_reported(spec):
        lines = cli.listed(planned(read(spec)), cli.Wanted(side, reason), limit)
        sys.stdout.writelines(f"{line}\n" for line in lines)


@dead.command("replay")
def replay_dead_letters(
    spec: SpecFile,
    side: LetterSide = None,
    reason: LetterReason = None,
    dry_run: Annotated[bool, typer.Option(help="Say what would be put back.")] = False,
) -> None:
    """Put dead letters back into the topics they came from, each once, in one transaction."""
    from job.dead_letters import cli

    with errors_reported(spec):
        lines = cli.put_back(planned(read(spec)), cli.Wanted(side, reason), dry_run=dry_run)
        sys.stdout.writelines(f"{line}\n" for line in lines)


@app.command()
def run(spec: SpecFile) -> None:
    """Run the join until SIGTERM or Ctrl-C."""
    with errors_reported(spec):
        document = read(spec)
        failed = served(document, planned(document, asks="must"), JobSettings())
    raise typer.Exit(1 if failed else 0)


def served(spec: JoinSpec, made: JoinPlan, settings: JobSettings) -> bool:
    """Run engine and control socket until a signal ends them; whether the query had failed."""
    from job.spark.session import Jvm

    redaction = Redaction()
    log_to_stderr(redaction)
    with closing(Jvm(settings, made.spark_conf, redaction)) as jvm:
        return kept_running(jvm, spec, made, settings, redaction)


def kept_running(
    jvm: "Jvm", spec: JoinSpec, made: JoinPlan, settings: JobSettings, redaction: Redaction
) -> bool:
    # Imported here: no other command is to wait for PySpark, and this one lets the JVM start first.
    from job.kafka.broker_watch import BrokerWatch
    from job.kafka.security import kafka_access, librdkafka_settings
    from job.protocol.answers import PlanAnswer
    from job.protocol.control import control_socket
    from job.protocol.progress import QueryState
    from job.query.account import Account
    from job.query.desk import Desk
    from job.query.engine import Engine
    from job.query.idle import IdleSides

    account = Account()
    means = means_of(settings, made, cores=os.cpu_count() or 1)
    answer = PlanAnswer(
        text=explained(made, means),
        facts=facts(made, means),
        spec=spec.model_dump(mode="json", by_alias=True),
    )
    watch = BrokerWatch(
        made,
        settings=lambda: librdkafka_settings(kafka_access(made.bootstrap_servers, made.security)),
        read=lambda: account.offsets,
    )
    engine = Engine(made, settings, redaction, account, IdleSides(made, account, watch), jvm)
    desk = Desk(engine, account, watch, made, answer)
    with (
        control_socket(settings.socket, desk),
        on_signals(engine.end),
        closing(watch),
        closing(desk),
    ):
        watch.start()
        desk.start()
        return engine.run() is QueryState.FAILED


def read(path: Path) -> JoinSpec:
    try:
        text = path.read_text()
    except OSError as error:
        raise StreamjoinError(f"cannot be read: {error.strerror}") from error
    return spec_from_yaml(text, os.environ)


def planned(spec: JoinSpec, asks: Literal["must", "may", "if_needed"] = "if_needed") -> JoinPlan:
    """`asks`: whether the schema registry of a side must answer, may be silent where the side says
    its columns itself, or is then not even asked."""
    partitions = JobSettings().partitions_of_new_state
    return join_plan(spec, state_partitions=partitions, readers=_pinned(spec, asks))


def _pinned(
    spec: JoinSpec, asks: Literal["must", "may", "if_needed"]
) -> "Mapping[Side, ReaderSchema]":
    if spec.schema_registry is None:
        return {}
    # No command on JSON is to wait for the packages of other formats.
    from job.formats.pinning import reader_schemas

    try:
        return reader_schemas(spec, only_missing=asks == "if_needed")
    except (RegistryError, SecurityError) as error:
        if asks != "may" or not (spec.left.says_columns and spec.right.says_columns):
            raise
        typer.echo(f"not held against the registry: {error}", err=True)
        return {}


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


def log_to_stderr(redaction: Redaction) -> None:
    """JSON lines for machines, plain ones on a terminal."""
    terminal = sys.stderr.isatty()
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            redaction.scrub_event,
            structlog.dev.ConsoleRenderer() if terminal else structlog.processors.JSONRenderer(),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )


def main() -> None:
    app()


if __name__ == "__main__":
    main()
