"""What happened to a key: GET /v1/query/explain."""

from typing import Self

from job.protocol.answers import KeyExplanation
from service.schemas.state import StateRowsView
from service.schemas.view import View


class ExplainView(View):
    sentences: list[str]
    """Reasons why a row was not emitted, most relevant first."""
    left: StateRowsView
    """Rows of the key on the left side."""
    right: StateRowsView
    """Rows of the key on the right side."""

    @classmethod
    def of(cls, answer: KeyExplanation) -> Self:
        return cls(
            sentences=answer.sentences,
            left=StateRowsView.of(answer.left),
            right=StateRowsView.of(answer.right),
        )
