"""Where a secret could be shown: command lines, files, answers of job and service."""

import contextlib
from pathlib import Path

import httpx

from tests.integration.jobs import Job
from tests.integration.kafka_users import KEY_PASSWORD, SECRET, WRONG
from tests.processes import command_line
from tests.unit.specs import changed


def assert_hides_secrets(*texts: str) -> None:
    for text in texts:
        for secret in (SECRET, WRONG, KEY_PASSWORD):
            jaas = secret.replace("\\", "\\\\").replace('"', '\\"')
            for form in (secret, jaas, repr(secret)[1:-1], secret[:6]):
                assert form not in text


def command_lines(job: Job) -> list[str]:
    return [" ".join(command_line(process)) for process in job.tree]


def contents(folder: Path) -> list[str]:
    """The contents of all files below `folder`; files that disappear meanwhile are skipped."""
    texts = []
    for path in folder.rglob("*"):
        with contextlib.suppress(OSError):
            texts.append(path.read_bytes().decode("utf-8", "replace"))
    return texts


def job_answers(job: Job) -> list[str]:
    """The answers of the job on its socket."""
    return [str(job.ask(call)) for call in ("status", "plan", "progress", "failures")]


def answers(service: httpx.Client, spec: str) -> list[str]:
    """The answers to every GET call, and to a spec with an invalid field next to the password."""
    described = service.get("/openapi.json")
    looks = [path.format(side="left") for path, calls in described.json()["paths"].items()
             if "get" in calls]  # fmt: skip
    shown = [service.get(path, params={"key": "1"}).text for path in looks]
    yaml = {"content-type": "text/yaml"}
    validated = [
        service.post("/v1/validate", content=text, headers=yaml).text
        for text in (spec, changed(spec, kafka__security__protocol=SECRET))
    ]
    return [described.text, *shown, *validated]
