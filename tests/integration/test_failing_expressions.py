"""A record or a result on which an expression fails follows the policy for bad records."""

from pathlib import Path

import pytest

from tests.integration.failpoint import Failpoint
from tests.integration.jobs import Job
from tests.integration.jvms import SharedJvm
from tests.integration.test_dead_letters import Letters, letters, row
from tests.unit.specs import changed

__all__ = ["letters"]  # a fixture

FAILING = {
    "left__columns": {"no": "cast(pad as bigint)"},
    "left__key": ["no + 0"],
    "right__filter": "n < 100 or cast(pad as bigint) > 0",
    "join__condition": "left.n / right.n > 0",
    "output__columns": {"n": "left.n", "length": "10 / cast(right.pad as bigint)"},
}


def test_record_or_result_on_which_an_expression_fails_is_a_dead_letter_once_though_killed(
    letters: Letters, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, jvm: SharedJvm
) -> None:
    letters.create_topics()
    failpoint = Failpoint(tmp_path, monkeypatch)
    with Job(changed(letters.spec(), **FAILING), tmp_path, jvm) as job:
        letters.produce("left", [row(1, pad="1"), row(2, pad="no number"), row(3, pad="3")])
        letters.produce("right", [row(1, pad="5"), row(200, pad="no number")])
        job.wait_for_offsets(left=3, right=2)
        failpoint.arm("kill", "after_all_commits")
        letters.produce("left", [row(7, pad="0"), row(5, pad="5"), row(6, pad="")])
        letters.produce("right", [row(3, pad="x"), row(0, pad="8")])
        failpoint.wait()
        job.wait_for_kill()

        job.start()
        job.wait_for_offsets(left=6, right=4)
        letters.produce("right", [row(5, pad="5")])
        status = job.wait_for_offsets(left=6, right=5)
        assert 0 == job.terminate()

    dead = [
        (letter.side, letter.message.split(" cannot")[0], letter.offset, letter.reason)
        for letter in letters.dead()
    ]
    assert [
        ("left", "left.columns.no", 1, "expression_failed"),
        ("left", "left.columns.no", 5, "expression_failed"),
        ("output", "join.condition", 3, "expression_failed"),
        ("output", "output.columns.length", 2, "expression_failed"),
        ("right", "right.filter", 1, "expression_failed"),
    ] == sorted(dead)
    ids = [dict(letter.original_headers).get("streamjoin-id") for letter in letters.dead()]
    assert f"{letters.name}.left/0/3|{letters.name}.right/0/3".encode() in ids
    assert [1, 5] == letters.results()
    assert 2 == status.totals.failed_results
    assert 2 == status.totals.dead_letters["output"]["expression_failed"]


def test_policy_fail_names_the_failed_result_and_policy_drop_continues(
    letters: Letters, tmp_path: Path, jvm: SharedJvm
) -> None:
    letters.delivery = "at_least_once"
    letters.create_topics()
    with Job(changed(letters.spec(on_bad_record="fail"), **FAILING), tmp_path, jvm) as job:
        letters.produce("left", [row(1, pad="1"), row(3, pad="3")])
        letters.produce("right", [row(1, pad="5"), row(3, pad="x")])
        failure = job.wait_for_failure(1)
        assert "bad_record" == failure.code
        assert "output.columns.length cannot be evaluated on this result: 10" in failure.message
        job.terminate()

        job.spec_file.write_text(changed(letters.spec(on_bad_record="drop"), **FAILING))
        job.start()
        job.wait_for_offsets(left=2, right=2)
        letters.produce("left", [row(9, pad="no number")])
        status = job.wait_for_offsets(left=3, right=2)
        assert 0 == job.terminate()
    assert {1} == set(letters.results())  # at least once: each attempt has written it
    assert 1 == status.totals.failed_results
    assert 1 == status.totals.left.bad_records["expression_failed"]
