import pytest

from job.change.request import ChangeRequest
from job.settings import JobSettings
from tests.unit.change.requested_changes import changes_of


@pytest.fixture
def change(monkeypatch: pytest.MonkeyPatch) -> ChangeRequest:
    return changes_of(JobSettings(), monkeypatch)
