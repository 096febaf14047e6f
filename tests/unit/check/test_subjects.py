"""What a start would do in the subjects of the output, read from the registry."""

from dataclasses import replace

from job.check.subjects import findings
from job.formats import avro_schema
from job.formats.registration import ensure_registered
from job.formats.registry import RegistryAccess
from job.formats.schemas import OutputSchema
from job.spec.value_format import Format
from job.sql.types import BIGINT
from tests.registry_stub import RegistryStub

COLUMNS = (("ad_id", BIGINT),)
RESULTS = OutputSchema(
    Format.AVRO, "out-value", True, avro_schema.record_schema("tested", COLUMNS), COLUMNS
)
KEYS = OutputSchema(
    Format.AVRO, "out-key", True, avro_schema.plain_schema(BIGINT), COLUMNS, is_key=True
)


def test_subjects_of_keys_and_results_are_checked_and_nothing_is_registered() -> None:
    with RegistryStub() as registry:
        access = RegistryAccess(registry.url)

        def found(schema: OutputSchema) -> tuple[str, str]:
            [finding] = findings([schema], access)
            assert f"subject {schema.subject}" == finding.about
            return finding.level, finding.text

        first = "the start registers the schema of {} as its first version"
        assert ("info", f"does not exist: {first.format('output.key')}") == found(KEYS)
        assert ("info", f"does not exist: {first.format('the output columns')}") == found(RESULTS)

        ensure_registered(KEYS, access)
        registry.register("out-value", {"type": "record", "name": "r", "fields": []})
        assert ("info", "has the schema of output.key, with id 1") == found(KEYS)
        accepted = "accepts the change since version 1: the start registers the schema"
        assert found(RESULTS)[1].startswith(accepted)

        registry.refusal = "the type of cost differs"
        level, text = found(RESULTS)
        assert ("problem", True) == (level, registry.refusal in text)
        assert "`output.register` is false" in found(replace(RESULTS, registers=False))[1]

        registry.broken = (403, "{}")
        level, text = found(KEYS)
        assert ("problem", True) == (level, "or grant access" in text)
        registered = [path for path in registry.asked if path.endswith("/versions")]
        assert ["POST /subjects/out-key/versions"] == registered
