"""Prompts of `streamjoin init` for what no option sets."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeVar

from job.errors import StreamjoinError

Answer = TypeVar("Answer")


class ProposalError(StreamjoinError):
    """No spec can be proposed."""

    code = "proposal"


@dataclass(frozen=True)
class Question:
    """What a prompt is for."""

    text: str
    option: str
    """Option that replaces the prompt."""
    default: str | None = None
    reason: str | None = None
    """Why there is no default, or why the last input was refused."""


Prompt = Callable[[Question], str]
"""Returns the input. Raises ProposalError without prompts and without a default."""


def answered(prompt: Prompt, question: Question, read: Callable[[str], Answer]) -> Answer:
    """The input as `read` returns it. If `read` raises StreamjoinError, the user is prompted again
    with its message. Raises the error of a default."""
    while True:
        text = prompt(question).strip()
        try:
            return read(text)
        except StreamjoinError as error:
            if text == question.default:
                raise
            question = replace(question, reason=str(error))
