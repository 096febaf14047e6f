"""`streamjoin check`."""

import os
from dataclasses import replace

import typer

from job.commands.output import AsJson, print_facts
from job.commands.spec_file import SpecFile, plan_with, read_spec, report_errors, sql_worker
from job.errors import with_spec_file
from job.settings import JobSettings, read_settings
from job.sql.questions import SqlQuestions
from job.sql.rows import SqlRows


def check(
    spec: SpecFile,
    as_json: AsJson = False,
) -> None:
    """Compare a spec with the broker: topics, rights and a sample of the records; with the subjects
    of the output in the schema registry; and with a checkpoint on this machine. Exit 1 if a start
    would be refused or all records of a side are bad.

    Reads up to 1,000 records of each side. Changes nothing, and does not disturb a running job.
    """
    from job.check import checker
    from job.kafka.security import kafka_access
    from job.logs import log_to_stderr
    from job.plan.resources import available_resources
    from job.redaction import Redaction

    with report_errors(spec), sql_worker() as worker:
        sql = SqlQuestions(worker.ask)
        made = plan_with(read_spec(spec), sql, registry="required")
        settings = read_settings(JobSettings)
        resources = available_resources(settings, made, cores=os.cpu_count() or 1)
        access = kafka_access(made.bootstrap_servers, made.security, made.schema_registry)
        redaction = Redaction()
        redaction.add(access.secrets)
        log_to_stderr(redaction, settings.log_format)
        report = checker.check(made, access, sql, SqlRows(worker.ask), resources)
        report.findings = [
            replace(each, text=with_spec_file(each.text, spec)) for each in report.findings
        ]
    print_facts(report.as_json, report.lines, as_json=as_json)
    raise typer.Exit(1 if report.has_problems else 0)
