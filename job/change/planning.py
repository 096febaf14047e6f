"""Plans the spec of a caller in a separate process: `python -m job.change.planning`.

Reads a pickled PlanRequest from standard input, and writes a pickled PlannedSpec or StreamjoinError
to standard output. Planning a valid spec of 64 kB takes a second and more.
"""

import pickle
import sys
from collections.abc import Mapping
from dataclasses import dataclass

from job.change.sent_spec import PlannedSpec, WrittenSpec, sent_spec
from job.errors import Problem, SpecError, StreamjoinError
from job.plan.planner import join_plan
from job.plan.validation import TOO_LARGE, limit_resources


@dataclass(frozen=True)
class PlanRequest:
    text: str
    running: WrittenSpec
    environment: Mapping[str, str]
    """The variables of the running spec. The new one may contain no others."""
    state_partitions: int


def planned(request: PlanRequest) -> PlannedSpec:
    """Raises SpecError as `sent_spec` and `join_plan`, RegistryError or SecurityError if the schema
    registry does not answer."""
    written = sent_spec(request.text, request.running, request.environment)
    readers = {}
    if written.spec.schema_registry is not None:
        # A join of JSON loads no packages of other formats.
        from job.formats.pinning import reader_schemas

        readers = reader_schemas(written.spec)
    plan = join_plan(written.spec, state_partitions=request.state_partitions, readers=readers)
    return PlannedSpec(written, plan)


def main() -> None:
    """First argument: seconds of CPU time after which the kernel kills the process."""
    limit_resources(float(sys.argv[1]))
    answer: PlannedSpec | StreamjoinError
    try:
        answer = planned(pickle.load(sys.stdin.buffer))  # noqa: S301  # from the job
    except MemoryError:
        answer = SpecError([Problem("the file", None, TOO_LARGE)])
    except StreamjoinError as error:
        answer = error
    sys.stdout.buffer.write(pickle.dumps(answer))


if __name__ == "__main__":
    main()
