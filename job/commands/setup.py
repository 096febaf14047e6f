"""`streamjoin setup`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, get_args

import typer

from job.errors import SetupError, StreamjoinError

if TYPE_CHECKING:
    from job.installation.jars import JarSet


def setup(
    sets: Annotated[
        list[str] | None,
        typer.Argument(metavar="SET", help="Download only these sets of jars, such as s3."),
    ] = None,
    repository: Annotated[
        str | None,
        typer.Option(metavar="URL", help="Maven repository in place of Maven Central."),
    ] = None,
    copies: Annotated[
        Path | None,
        typer.Option(
            "--from",
            metavar="FOLDER",
            exists=True,
            file_okay=False,
            help="Copy the jars from this folder; download nothing.",
        ),
    ] = None,
    class_archive: Annotated[
        bool,
        typer.Option(
            "--class-archive/--no-class-archive",
            help="Create a file of 200 MB with which each start takes some seconds less.",
        ),
    ] = True,
) -> None:
    """Set up this machine: the pinned jars, the compiled classes, and the class archive.

    Checks Java and all checksums. Only what is missing is downloaded, also after an interruption.
    """
    from job.installation import jars

    try:
        known = get_args(jars.JarSet)
        if unknown := sorted(set(sets or ()) - set(known)):
            raise SetupError(f"unknown set of jars: {', '.join(unknown)}. Sets: {', '.join(known)}")
        if sets:
            for jar_set in known:
                if jar_set in sets:
                    _provide_jars(jar_set, repository, copies)
        else:
            _set_up(repository, copies, with_class_archive=class_archive)
    except StreamjoinError as error:
        typer.echo(error, err=True)
        raise typer.Exit(error.exit_code) from None


def _set_up(repository: str | None, copies: Path | None, *, with_class_archive: bool) -> None:
    from job.installation import compiler, folders, jars, java

    folders.spark_jars()  # without PySpark, nothing else is of use
    found = java.tried_java()
    typer.echo(f"Java {found.version}: {found.home}")
    for jar_set in jars.sets_of_all():
        _provide_jars(jar_set, repository, copies)
    folder = folders.job_jars()
    compiler.provide_classes(folder)
    jars.check_job_jars(folder)
    typer.echo("Java classes of the job: ready")
    if with_class_archive:
        _provide_class_archive(folder)
    typer.echo(f"Streamjoin is set up in {folders.jar_root()}.")


def _provide_jars(jar_set: "JarSet", repository: str | None, copies: Path | None) -> None:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    from job.installation import folders, jars

    missing = jars.missing_jars(jar_set)
    columns = (TextColumn(f"Jars of {jar_set}"), BarColumn(), MofNCompleteColumn())
    console = Console(stderr=True)
    # The bar appears on a terminal only; the line after it in every log.
    with Progress(
        *columns, console=console, transient=True, disable=not console.is_terminal
    ) as progress:
        bar = progress.add_task("", total=len(missing))
        jars.fetch(
            jar_set,
            repository=repository,
            copies=copies,
            on_jar=lambda _: progress.advance(bar),
        )
    count = f"{len(missing)} new" if missing else "complete"
    typer.echo(f"Jars of {jar_set}: {count}, in {folders.jar_root() / jar_set}")


def _provide_class_archive(folder: Path) -> None:
    from job import class_archive

    if class_archive.is_current(folder):
        typer.echo("Class archive: ready")
        return
    typer.echo("Class archive for faster starts: takes half a minute …")
    try:
        archive = class_archive.create(folder)
    except StreamjoinError as error:
        typer.echo(
            f"The class archive was not created: each start takes some seconds longer. Nothing "
            f"else changes. {error}",
            err=True,
        )
    else:
        typer.echo(f"Class archive: {archive.stat().st_size / 1e6:.0f} MB")
