import pytest

from job.query.requested_change import RequestedChange
from job.settings import JobSettings
from tests.unit.query.requested_changes import changes_of


@pytest.fixture
def change(monkeypatch: pytest.MonkeyPatch) -> RequestedChange:
    return changes_of(JobSettings(), monkeypatch)
