"""The two inputs of a join."""

from collections.abc import Mapping
from typing import Literal

Side = Literal["left", "right"]
SIDES: tuple[Side, Side] = ("left", "right")
OTHER_SIDE: Mapping[Side, Side] = {"left": "right", "right": "left"}
