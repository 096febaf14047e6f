"""Which Streamjoin this is."""

from importlib.metadata import version

VERSION = version("streamjoin")
