"""Calls `streamjoin` in this process."""

from typer.testing import CliRunner, Result

from job.__main__ import app


def streamjoin(*arguments: object) -> Result:
    return CliRunner().invoke(app, [*map(str, arguments)])
