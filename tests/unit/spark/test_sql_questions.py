"""The job's own JVM as the one that answers questions about SQL."""

from threading import Event

import pytest

from job.errors import SetupError
from job.spark import sql_questions


def test_question_without_an_answer_is_an_error_with_the_remedy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ended = Event()

    class Stuck:
        def answer(self, _: str) -> None:
            ended.wait()

    monkeypatch.setattr(sql_questions, "jvm_class", lambda _jvm, _name: Stuck())

    with pytest.raises(SetupError, match="`streamjoin validate` names"):
        sql_questions.answer(None, {"kind": "names", "text": "left.n > 1"}, seconds=0.1)
    ended.set()
