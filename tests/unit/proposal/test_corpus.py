"""`streamjoin init` on pairs of topics of different shapes."""

import json
import re
from dataclasses import replace
from typing import Any

import pytest

from job.proposal.columns import Table, table_of
from job.proposal.dialog import Options, draft_of, proposed
from job.proposal.envelopes import opened
from job.proposal.json_schemas import schema_columns
from job.proposal.observed import Observer
from job.proposal.prompts import ProposalError, Question
from job.proposal.proposal import Proposal
from job.proposal.spec_text import spec_text
from job.proposal.values import table_of_sample
from job.semantics.simulate import simulate
from job.spec.sides import SIDES, Side
from job.spec.value_format import Format
from tests.sql_worker import ROWS, SQL, parse_type
from tests.unit.proposal.corpus import CASES
from tests.unit.proposal.corpus.case import Case, Topic

OBSERVER = Observer({}, SQL, ROWS)


def table(topic: Topic, registered: dict[str, Any] | None) -> Table:
    schema = {} if registered is None else schema_columns(json.dumps(registered))
    if not topic.types:
        return table_of_sample(topic.sample, schema)
    read = table_of(topic.records)
    types = {name: parse_type(ddl) for name, ddl in topic.types.items()}
    # Without a reader, because no registry has the schema: the types are in the spec.
    found = replace(read, columns=types, format=Format.PROTOBUF, simulated=read.records)
    return replace(opened(found), format=Format.JSON)


def prompt(question: Question) -> str:
    if question.default is None:
        raise ProposalError(question.reason or question.text)
    return question.default


def draft(case: Case) -> Proposal:
    topics: dict[Side, str] = {"left": case.left.name, "right": case.right.name}
    tables: dict[Side, Table] = {
        "left": table(case.left, case.registered),
        "right": table(case.right, case.registered),
    }
    return replace(draft_of(topics, tables, OBSERVER), compacted=case.compacted)


def proposal_of(case: Case, options: Options, shown: list[str]) -> Proposal:
    return proposed(draft(case), options, prompt, shown.append, OBSERVER)


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.key is not None])
def test_proposed_spec_is_the_right_one_and_gives_results(name: str) -> None:
    case, shown = CASES[name], list[str]()
    found = proposal_of(case, Options(), shown)
    text = spec_text(found, SQL)

    keys = tuple(", ".join(pair[side] for pair in found.keys) for side in (0, 1))
    times = tuple(found.times[side].sql for side in ("left", "right"))
    assert (case.key, case.times) == (keys, times), text
    assert re.search(rf"match_window: .* after: {case.after}}}", text), text
    assert [] == [comment for comment in case.comments if comment not in text], text
    assert [] == [comment for comment in case.lacks if comment in text], text
    assert "evidence" in shown[0]
    reported = {line.partition(":")[0] for line in shown if "usually a table" in line}
    assert case.compacted == reported
    left, right = (found.tables[side].simulated for side in SIDES)
    batches = simulate(OBSERVER.plan(found), ROWS, left, right)
    results = sum(len(batch.output) for batch in batches)
    assert results == case.results or (case.results == -1 and results > 0)


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.key is None])
def test_key_is_refused_with_what_to_do(name: str) -> None:
    with pytest.raises(ProposalError) as error:
        proposal_of(CASES[name], Options(), [])
    assert CASES[name].refused in str(error.value)
    assert "et --left-key and --right-key" in str(error.value)
