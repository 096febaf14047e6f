"""What `check` says about the topic of a table."""

import pytest

from job.check.checker import table_findings


@pytest.mark.parametrize(
    "settings",
    [
        {"cleanup.policy": "compact", "retention.ms": "3600000"},
        {"cleanup.policy": "delete", "retention.ms": "-1"},
    ],
)
def test_topic_that_keeps_each_key_has_no_finding(settings: dict[str, str]) -> None:
    assert [] == list(table_findings("customers", settings))


@pytest.mark.parametrize("policy", ["delete", "compact,delete"])
def test_topic_that_removes_old_records_has_a_warning(policy: str) -> None:
    settings = {"cleanup.policy": policy, "retention.ms": "3600000"}
    (finding,) = table_findings("customers", settings)

    assert "warning" == finding.level
    assert "removes its records after 1 hour (retention.ms)" in finding.text


def test_compacted_topic_of_versions_has_a_warning() -> None:
    settings = {"cleanup.policy": "compact", "min.compaction.lag.ms": "3600000"}
    (finding,) = table_findings("prices", settings, is_as_of=True)

    assert "after 1 hour (min.compaction.lag.ms)" in finding.text
    assert [] == list(table_findings("prices", {"cleanup.policy": "compact"}))
