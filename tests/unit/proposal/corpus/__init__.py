"""Pairs of topics of different shapes, each with the spec that is right for it."""

from tests.unit.proposal.corpus import cdc, formats, keys, names, numbers, refused, times

CASES = {
    case.name: case
    for module in (keys, numbers, names, formats, cdc, times, refused)
    for case in module.CASES
}
