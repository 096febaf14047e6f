"""The spec that a command works on: read, planned, and reported with its problems."""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, NoReturn

import typer

from job.change.sent_spec import WrittenSpec
from job.errors import (
    Problem,
    RegistryError,
    RequestError,
    SecurityError,
    SpecError,
    StreamjoinError,
)
from job.instants import to_epoch_ms
from job.plan import sql_problems
from job.plan.plan import JoinPlan
from job.plan.planner import join_plan
from job.plan.warnings import warnings
from job.settings import JobSettings, LogFormat, read_settings
from job.spec.document import parsed
from job.spec.durations import instant
from job.spec.spec import JoinSpec, spec_from_yaml
from job.spec.variables import filled, variables_hidden
from job.sql.questions import SqlQuestions
from job.sql.worker import HEAP_MB, SqlWorker

if TYPE_CHECKING:
    from job.formats.schemas import Part, ReaderSchema

SIMULATION_HEAP_MB = 2_048
"""Of the process that keeps the rows of a simulation."""
RECORDS_MAX = 1_000_000_000
"""Of an option that limits a number of records."""
SpecFile = Annotated[Path, typer.Argument(metavar="SPEC", help="YAML file of the join.")]
RegistryUse = Literal["required", "preferred", "if_needed"]
"""`required`: a registry that does not answer ends the command. `preferred`: if it does not answer,
the columns in the spec are used. `if_needed`: only schemas missing in the spec are read."""


def read_structure(path: Path) -> JoinSpec:
    """Raises StreamjoinError if the file cannot be read, SpecError if the spec is invalid, whatever
    its SQL is."""
    return spec_from_yaml(read_text(path), os.environ)


def read_spec(path: Path) -> JoinSpec:
    """As `read_structure`. The SpecError has also the problems of the SQL."""
    return read_written_spec(path).spec


def read_written_spec(path: Path) -> WrittenSpec:
    """As `read_spec`, with the text of the file."""
    text = read_text(path)
    with sql_worker() as worker:  # starts a process only if the structure is invalid
        return WrittenSpec(text, sql_problems.read_spec(text, os.environ, SqlQuestions(worker.ask)))


def read_name(path: Path) -> str:
    """The `name` in the file. The rest of the spec is not checked, and its variables need no value:
    a running job can be stopped whatever is in the file."""
    document = parsed(read_text(path))
    name = document.get("name") if isinstance(document, Mapping) else None
    if not isinstance(name, str):
        raise SpecError([Problem("name", None, "is required, and must be a text")])
    return str(filled({"name": name}, os.environ)["name"])


def read_text(path: Path) -> str:
    """Raises StreamjoinError if the file cannot be read."""
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise StreamjoinError(f"cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        message = f"is not text in UTF-8 (byte {error.start}): save the file in UTF-8"
        raise SpecError([Problem("the file", None, message)]) from error


def check_spec(path: Path) -> list[str]:
    """The warnings. SpecError with the problems of the structure and of the SQL."""
    return list(warnings(create_plan(read_spec(path), registry="preferred")))


def create_plan(spec: JoinSpec, registry: RegistryUse = "if_needed") -> JoinPlan:
    """The plan of `spec` with the settings of this machine and the schemas of its registry."""
    with sql_worker() as worker:
        return plan_with(spec, SqlQuestions(worker.ask), registry)


def create_plans(paths: Sequence[Path], registry: RegistryUse = "if_needed") -> list[JoinPlan]:
    """The plans of several files. Prints errors as `report_errors`."""
    plans = []
    with ExitStack() as ended:
        sql: SqlQuestions | None = None
        for path in paths:
            with report_errors(path):
                spec = read_spec(path)
                if sql is None:
                    sql = SqlQuestions(ended.enter_context(sql_worker()).ask)
                plans.append(plan_with(spec, sql, registry))
    return plans


def plan_with(spec: JoinSpec, sql: SqlQuestions, registry: RegistryUse = "if_needed") -> JoinPlan:
    """As `create_plan`, with the answers of a process that the caller needs for something else."""
    partitions = read_settings(JobSettings).partitions_of_new_state
    readers = _read_schemas(spec, registry, sql)
    return join_plan(spec, sql, state_partitions=partitions, readers=readers)


def sql_worker(*, heap_mb: int = HEAP_MB) -> SqlWorker:
    return SqlWorker(read_settings(JobSettings).jars, heap_mb=heap_mb)


def _read_schemas(
    spec: JoinSpec, registry: RegistryUse, sql: SqlQuestions
) -> "Mapping[Part, ReaderSchema]":
    if spec.schema_registry is None:
        return {}
    # Commands on JSON load no packages of other formats.
    from job.formats.pinning import reader_schemas

    try:
        return reader_schemas(spec, sql, only_missing=registry == "if_needed")
    except (RegistryError, SecurityError) as error:
        is_enough = all(each.has_columns and each.has_key_type for each in (spec.left, spec.right))
        if registry != "preferred" or not is_enough:
            raise
        typer.echo(f"not compared with the schema registry: {error}", err=True)
        return {}


def epoch_ms(option: str, text: str | None) -> int | None:
    """The time of an option. Raises RequestError."""
    if text is None:
        return None
    if (time := instant(text)) is None:
        raise RequestError(f"invalid {option} {text}: use a time such as 2026-01-31T12:00:00Z")
    return to_epoch_ms(time)


@contextmanager
def report_errors(
    spec: Path | None,
    log_format: LogFormat = "auto",
    on_problems: Callable[[Sequence[Problem]], None] = lambda _: None,
) -> Iterator[None]:
    """Prints a StreamjoinError without a stack trace and exits with its code. `spec`: None: the
    command works on no file. `on_problems`: called with the problems of the spec, if it has some.

    Where a `${VAR}` of the spec was replaced, the message shows the variable, not its value.
    """
    try:
        try:
            yield
        except SpecError:
            # `init` reports problems of a spec that is not written yet.
            text = read_text(spec) if spec is not None and spec.exists() else ""
            with variables_hidden(text, os.environ):
                raise
    except StreamjoinError as error:
        if spec is not None:
            error.name_spec_file(spec)
        _exit_with(error, spec, log_format, on_problems)


def _exit_with(
    error: StreamjoinError,
    spec: Path | None,
    log_format: LogFormat,
    on_problems: Callable[[Sequence[Problem]], None],
) -> NoReturn:
    if isinstance(error, SpecError):
        on_problems(error.problems)
        count = len(error.problems)
        title = f"{spec}: {count} problem{'s' if count > 1 else ''}"
        lines = [title, *(f"  {problem}" for problem in error.problems)]
    else:
        lines = [str(error) if spec is None else f"{spec}: {error}"]
    _print_errors(lines, log_format)
    raise typer.Exit(error.exit_code) from None


def _print_errors(lines: list[str], log_format: LogFormat) -> None:
    if log_format == "json":
        # Other commands import no logging.
        from job.logs import event_line

        lines = [event_line(line.strip(), "error").rstrip() for line in lines]
    for line in lines:
        typer.echo(line, err=True)
