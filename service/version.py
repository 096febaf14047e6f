"""The version of Streamjoin."""

from importlib.metadata import version

VERSION = version("streamjoin")
