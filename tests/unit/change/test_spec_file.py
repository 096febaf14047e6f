"""What a restart does with the present content of the spec file."""

from pathlib import Path
from threading import Event

import pytest

from job.change.sent_spec import PlannedSpec, WrittenSpec
from job.change.spec_file import SpecFile
from job.errors import FrozenSpecError, RequestError, SpecError
from job.plan.fingerprint import fingerprint
from job.protocol.calls import ReadSpec, Restart, Stop
from job.redaction import Redaction
from job.settings import JobSettings
from job.spec.spec import spec_from_yaml
from tests.unit.change.requested_changes import NEW, OLD, PlannerOfTests, plan_of
from tests.unit.specs import spec_yaml

READ = Restart(reads_spec=True)


def planned(text: str) -> PlannedSpec:
    spec = spec_from_yaml(text, {})
    return PlannedSpec(WrittenSpec(text, spec), plan_of(spec))


class File:
    """A spec file with which a job has started."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "join.yaml"
        started = planned(OLD)
        self.spec_file = SpecFile(self.path, Path.read_text, started, JobSettings(), Redaction())
        self.frozen = fingerprint(started.plan)

    def read(self, text: str) -> str:
        self.path.write_text(text)
        specs = PlannerOfTests()
        return self.spec_file.compare(self.frozen, specs, ReadSpec(), Event()).message


@pytest.fixture
def file(tmp_path: Path) -> File:
    return File(tmp_path)


def test_unchanged_file_leaves_the_running_spec(file: File) -> None:
    assert "contains the running spec" in file.read(OLD + "\n# a comment\n")
    assert file.spec_file.take_for(READ) is None


def test_changed_file_is_taken_once_by_a_restart_that_has_read_it(file: File) -> None:
    text = spec_yaml(output__filter="left.cost > 1")
    assert "has changed: the query continues with it" in file.read(text)

    assert file.spec_file.take_for(Stop()) is None
    assert file.spec_file.take_for(Restart()) is None
    taken = file.spec_file.take_for(READ)
    assert taken is not None
    assert text == taken.written.text
    assert file.spec_file.take_for(READ) is None

    file.spec_file.continue_with(taken)
    assert "has changed: the query continues with it" in file.read(OLD)


def test_changed_file_is_read_again_if_another_command_has_replaced_the_restart(file: File) -> None:
    text = spec_yaml(output__filter="left.cost > 1")
    file.read(text)
    assert file.spec_file.take_for(READ) is not None

    assert "has changed: the query continues with it" in file.read(text)


def test_frozen_field_is_refused_with_the_remedy(file: File) -> None:
    with pytest.raises(FrozenSpecError, match="streamjoin change") as refused:
        file.read(spec_yaml(join__match_window__after="11 seconds"))

    assert "join.match_window.after: frozen as" in str(refused.value)
    assert file.spec_file.take_for(READ) is None


def test_file_with_another_checkpoint_is_refused(file: File) -> None:
    with pytest.raises(RequestError, match=r"`checkpoint` in .* is /checkpoints/next"):
        file.read(NEW)


def test_invalid_file_is_refused(file: File) -> None:
    with pytest.raises(SpecError, match="name: is required"):
        file.read("left: {}")


def test_running_spec_stays_if_the_file_is_the_one_before_a_change(file: File) -> None:
    file.spec_file.continue_with(planned(NEW))  # a change over HTTP

    assert "the running spec stays" in file.read(OLD)
    assert file.spec_file.take_for(READ) is None
    assert "contains the running spec" in file.read(NEW)


def test_messages_name_the_file_only_while_it_has_the_running_spec(file: File) -> None:
    def named() -> str:
        error = RequestError("run `streamjoin reset SPEC`")
        file.spec_file.name_in(error)
        return str(error)

    assert f"run `streamjoin reset {file.path}`" == named()
    file.spec_file.continue_with(planned(NEW))  # over HTTP
    assert "run `streamjoin reset SPEC`" == named()
