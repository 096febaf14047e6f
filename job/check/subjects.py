"""The subjects of the output in the schema registry, before a start registers its schemas."""

from collections.abc import Iterable, Iterator

from job.check.finding import Finding, info, problem
from job.errors import RegistryError, SecurityError, SpecError
from job.formats.registration import expected_registration
from job.formats.registry import RegistryAccess
from job.formats.schemas import OutputSchema


def findings(schemas: Iterable[OutputSchema], registry: RegistryAccess | None) -> Iterator[Finding]:
    """Registers nothing, so the right to write to a subject is not checked."""
    for schema in schemas:
        assert registry is not None, "JoinSpec requires it"
        about = f"subject {schema.subject}"
        try:
            yield info(about, expected_registration(schema, registry))
        except SpecError as error:
            yield from (problem(about, each.message) for each in error.problems)
        except (RegistryError, SecurityError) as error:
            yield problem(about, str(error))
