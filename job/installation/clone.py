"""Whether this is a clone of the repository or an installed package, and the command that sets it
up. Standard library only."""

from pathlib import Path

ROOT = Path(__file__).parents[2]
"""The clone; in an installed package the folder `streamjoin`. Both contain jars.toml."""
IN_CLONE = not __name__.startswith("streamjoin.")
COMMAND = ".venv/bin/streamjoin" if IN_CLONE else "streamjoin"
SETUP_COMMAND = "make setup" if IN_CLONE else "streamjoin setup"
JARS_REMEDY = (
    f"Run `{SETUP_COMMAND}`; if STREAMJOIN_JARS is set, it must be a folder with the jars of this "
    "version"
)
