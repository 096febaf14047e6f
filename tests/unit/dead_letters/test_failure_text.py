"""The message of a query that fails at a bad record."""

from job.dead_letters.failure_text import as_sql


def test_sql_of_a_template_has_its_text_quoted_and_the_values_of_its_fields() -> None:
    assert "concat(side, ' record ', `n`, '!')" == as_sql(
        "{side} record {n}!", side="side", n="`n`"
    )
