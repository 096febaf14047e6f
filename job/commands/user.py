"""The user who calls a command."""

import getpass
import os


def user_name() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a user of a container without a name
        return f"uid {os.getuid()}"
