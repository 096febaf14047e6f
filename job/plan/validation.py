"""Validates a spec in a separate process: `python -m job.plan.validation`.

Reads a ValidationRequest as JSON from standard input and writes a ValidationResult to standard
output. An external spec can need more resources than the job has; this process has limits, and no
secrets.
"""

import math
import os
import resource
import sys
from collections.abc import Mapping

from pydantic import BaseModel, ConfigDict

from job.errors import SpecError
from job.join_spec.spec import spec_from_yaml
from job.plan.explain import explained
from job.plan.fingerprint import incompatible_changes
from job.plan.plan import JoinPlan
from job.plan.planner import join_plan
from job.protocol.results import FieldProblem, FrozenChange, ValidationResult

# The most expensive specs of 64 kB need 90 MB of address space, including Python.
_MEMORY_BYTES_MAX = 512 * 1024 * 1024
TOO_LARGE = f"needs more than {_MEMORY_BYTES_MAX:,} bytes of memory: make the spec smaller"
# The batches of the query have priority.
_NICENESS = 10


class ValidationRequest(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    spec: str
    """YAML. `${VAR}` is not replaced: the response would show the environment of this machine."""
    state_partitions: int
    """State partitions of the running query."""
    frozen: dict[str, str] | None
    """Settings frozen by the checkpoint, by field. None: the query has no checkpoint yet."""


def validated(request: ValidationRequest) -> ValidationResult:
    """All problems of the spec, or its plan and its changes that the checkpoint refuses."""
    try:
        plan = join_plan(
            spec_from_yaml(request.spec, {}), state_partitions=request.state_partitions
        )
    except SpecError as error:
        problems = [
            FieldProblem(field=problem.field, message=problem.message) for problem in error.problems
        ]
        return ValidationResult(problems=problems, plan=None, checkpoint_changes=None)
    return ValidationResult(
        problems=[],
        plan=explained(plan),
        checkpoint_changes=None if request.frozen is None else _changes(plan, request.frozen),
    )


def _changes(plan: JoinPlan, frozen: Mapping[str, str]) -> list[FrozenChange]:
    return [
        FrozenChange(field=change.field, frozen=change.frozen, wanted=change.wanted)
        for change in incompatible_changes(plan, frozen)
    ]


def limit_resources(cpu_seconds: float) -> None:
    seconds = math.ceil(cpu_seconds)
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES_MAX, _MEMORY_BYTES_MAX))
    os.nice(_NICENESS)


def main() -> None:
    """First argument: seconds of CPU time after which the kernel kills the process."""
    limit_resources(float(sys.argv[1]))
    request = ValidationRequest.model_validate_json(sys.stdin.buffer.read())
    try:
        answer = validated(request)
    except MemoryError:
        problem = FieldProblem(field="the file", message=TOO_LARGE)
        answer = ValidationResult(problems=[problem], plan=None, checkpoint_changes=None)
    sys.stdout.write(answer.model_dump_json())


if __name__ == "__main__":
    main()
