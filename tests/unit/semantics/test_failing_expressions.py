"""Expressions that fail on a record or on a result, in a simulated join."""

from job.semantics.trace import batch_lines
from tests.unit.semantics.simulations import plan, row, run


def test_record_on_which_the_filter_fails_is_bad_and_moves_no_watermark():
    (batch,) = run(plan(left__filter="1 / v > 0"), [row(1, 0, 0), row(1, 5, 1)])

    assert {"expression_failed": 1} == dict(batch.bad_records["left"])
    assert ("expression_failed", "left.filter") == (batch.drops[0].reason, batch.drops[0].field)


def test_result_on_which_an_expression_fails_is_reported_with_its_field():
    failing = plan(output__columns={"k": "left.k", "q": "left.v / right.v"})

    batch, *_ = run(failing, [row(1, 0, 6)], [row(1, 0, 0), row(1, 0, 3)])

    assert ['{"k":1,"q":2.0}'] == [record.value for record in batch.output]
    (failed,) = batch.failed_results
    assert ("output.columns.q", 0) == (failed.field, failed.right.offset)
    assert (
        "  output: 1 dropped, expression_failed in output.columns.q (left 0/0, right 0/0)"
        in list(batch_lines(failing, [batch]))
    )


def test_pair_on_which_the_condition_fails_is_counted_as_neither_matched_nor_unmatched():
    for join_type in ("inner", "left_outer", "left_anti"):
        failing = plan(
            join__type=join_type,
            join__condition="left.v / right.v > 1",
            output__columns={"k": "left.k"},
        )

        batches = run(failing, [row(1, 0, 1)], [row(1, 0, 0)])

        failed = [one.field for batch in batches for one in batch.failed_results]
        assert (["join.condition"], 0) == (failed, sum(len(batch.output) for batch in batches))
