"""Keys and event times: the options and inputs of the user, or what the samples propose."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from job.proposal.keys import KeyPair, KeySide, Strength, key_fields, key_pairs
from job.proposal.observed import Observer
from job.proposal.prompts import Prompt, ProposalError, Question, answered
from job.proposal.proposal import Proposal
from job.proposal.times import EventTime, can_be_declared, event_times
from job.spec.sides import OTHER_SIDE, SIDES, Side
from job.sql.questions import SqlError, SqlQuestions
from job.sql.types import BIGINT, STRING

_NAMED_MAX = 3
"""Weak candidates in a message."""

Texts = Mapping[Side, str | None]


@dataclass(frozen=True)
class Choice:
    """Chooses keys and event times of a draft."""

    draft: Proposal
    observer: Observer
    prompt: Prompt

    def chosen(self, keys: Texts, times: Texts) -> Proposal:
        """The draft with keys and event times. `keys` and `times`: the options, by side. Raises
        SpecError for an expression that a spec cannot have."""
        draft = self.draft
        candidates = {
            side: event_times(draft.tables[side], self.observer.rows, draft.quoted)
            for side in SIDES
        }
        found = {side: self._time(side, times[side], candidates[side]) for side in SIDES}
        pair, keys_, others = self._keys(keys, found, candidates)
        for side in SIDES:
            if times[side] is None:
                found[side] = self._prompted_time(side, found[side], candidates[side])
        proposal = self.observer.observed(
            replace(
                draft,
                times=found,
                keys=keys_,
                strength=None if pair is None else pair.strength,
                other_keys=others,
                other_times=candidates,
            )
        )
        if not all(keys.values()):
            _refuse_unread(proposal)
        return proposal

    def _prompted_time(
        self, side: Side, likeliest: EventTime, candidates: Sequence[EventTime]
    ) -> EventTime:
        question = Question(f"Event time of the {side} side", f"--{side}-event-time", likeliest.sql)
        return answered(self.prompt, question, lambda text: self._time(side, text, candidates))

    def _time(self, side: Side, text: str | None, candidates: Sequence[EventTime]) -> EventTime:
        """The event time of a text. None: the likeliest."""
        known = [time for time in candidates if text in (None, time.sql, _unquoted(time.sql))]
        if known:
            return known[0]
        assert text is not None
        table = self.draft.tables[side]
        column = next((name for name in table.columns if name == _unquoted(text)), None)
        is_declared = (
            column is not None
            and table.declares_types
            and table.columns[column] in (STRING, BIGINT)
            and can_be_declared(table.values(column))
        )
        time = EventTime(text, [], (column,) if column and is_declared else ())
        return self.observer.event_time(self.draft, side, time)

    def _keys(
        self,
        texts: Texts,
        times: Mapping[Side, EventTime],
        candidates: Mapping[Side, Sequence[EventTime]],
    ) -> tuple[KeyPair | None, list[tuple[str, str]], list[KeyPair]]:
        """The chosen pair, if the samples propose it; its expressions; and the other pairs."""
        draft, sql = self.draft, self.observer.sql
        sides: dict[Side, KeySide] = {}
        for side in SIDES:
            are_times = {time.field for time in candidates[side]}
            fields = key_fields(draft.tables[side], draft.quoted)
            no_times = [field for field in fields if field.sql not in are_times]
            sides[side] = KeySide(draft.topics[side], no_times, times[side].times)
        pairs = found = key_pairs(sides["left"], sides["right"])
        given = {side: parts_of(text, sql) for side in SIDES if (text := texts[side])}
        for side in SIDES:
            if side in given:
                continue
            found = self._fitting(pairs, given, sides)
            best = found[0] if found and found[0].strength > Strength.WEAK else None
            default = None if best is None else ", ".join(_of(best, side))
            why = None if best is not None else _no_key(found, draft)
            question = Question(f"Key of the {side} side", f"--{side}-key", default, why)
            given[side] = self._prompted_key(side, question, given)
        left, right = given["left"], given["right"]
        _refuse_unpaired(left, right)
        known = [pair for pair in (*found, *pairs) if (*pair.left,) == (*left,)]
        chosen = next((pair for pair in known if (*pair.right,) == (*right,)), None)
        others = [pair for pair in pairs if ([*pair.left], [*pair.right]) != (left, right)]
        return chosen, list(zip(left, right, strict=True)), others

    def _prompted_key(
        self, side: Side, question: Question, given: Mapping[Side, list[str]]
    ) -> list[str]:
        def read(text: str) -> list[str]:
            parts = parts_of(text, self.observer.sql)
            if text == question.default:
                return parts
            for part in parts:
                self.observer.key_field(self.draft, side, part)
            if (other := given.get(OTHER_SIDE[side])) is not None:
                left, right = (other, parts) if side == "right" else (parts, other)
                _refuse_unpaired(left, right)
                keys = list(zip(left, right, strict=True))
                self.observer.plan(replace(self.draft, keys=keys))
            return parts

        return answered(self.prompt, question, read)

    def _fitting(
        self,
        pairs: Sequence[KeyPair],
        given: Mapping[Side, list[str]],
        sides: Mapping[Side, KeySide],
    ) -> list[KeyPair]:
        """The pairs with the keys that are given, of one side at most."""
        fitting = [
            pair for pair in pairs if all([*_of(pair, side)] == given[side] for side in given)
        ]
        if fitting or not given or any(len(parts) > 1 for parts in given.values()):
            return fitting
        [side] = given
        field = self.observer.key_field(self.draft, side, given[side][0])
        named = next((each for each in sides[side].fields if each.sql == field.sql), None)
        if named is not None:
            field = replace(field, parts=named.parts)
        fields = {side: [field], OTHER_SIDE[side]: sides[OTHER_SIDE[side]].fields}
        left, right = (replace(sides[each], fields=fields[each]) for each in SIDES)
        return [pair for pair in key_pairs(left, right) if [*_of(pair, side)] == given[side]]


def _refuse_unread(proposal: Proposal) -> None:
    """Raises ProposalError if no readable records share a value of the key."""
    evidence = proposal.evidence
    if evidence is None or evidence.shared:
        return
    left, right = (", ".join(pair[index] for pair in proposal.keys) for index in (0, 1))
    times = " and the ".join(
        f"{side} event time {proposal.times[side].sql} reads {evidence.read[side]} of "
        f"{len(proposal.tables[side].rows)} records"
        for side in SIDES
    )
    raise ProposalError(
        f"no key is proposed: no readable records share a value of {left} = {right}: the {times}. "
        "Set --left-event-time and --right-event-time to times that the records have, or set "
        "--left-key and --right-key"
    )


def _refuse_unpaired(left: Sequence[str], right: Sequence[str]) -> None:
    if len(left) != len(right):
        raise ProposalError(
            f"the left key has {len(left)} expressions and the right key {len(right)}: "
            "expressions are paired in order, so both need the same number"
        )


def parts_of(text: str, sql: SqlQuestions) -> list[str]:
    """The expressions of a key, which commas separate. The planner reports those that are none."""
    parts: list[str] = []
    part = ""
    for piece in text.split(","):
        part = f"{part},{piece}" if part else piece
        if _is_expression(part, sql):
            parts.append(part.strip())
            part = ""
    return [*parts, part.strip()] if part else parts


def _is_expression(text: str, sql: SqlQuestions) -> bool:
    try:
        sql.names(text)
    except SqlError:
        return False
    return True


def _of(pair: KeyPair, side: Side) -> tuple[str, ...]:
    return pair.left if side == "left" else pair.right


def _unquoted(sql: str) -> str:
    return sql.replace("`", "")


def _no_key(pairs: Sequence[KeyPair], draft: Proposal) -> str:
    """Why no key is proposed, and what to do."""
    left, right = (
        f"{len(draft.tables[side].rows)} records of {draft.topics[side]}" for side in SIDES
    )
    remedy = "set --left-key and --right-key to the key, e.g. --left-key id --right-key order_id"
    if not pairs:
        return (
            f"no key is proposed: no value of a column, a nested field or a record key is in the "
            f"{left} and in the {right}. {remedy[0].upper()}{remedy[1:]}"
        )
    weak = "; ".join(
        f"{', '.join(pair.left)} = {', '.join(pair.right)}: {pair.evidence}"
        for pair in pairs[:_NAMED_MAX]
    )
    return f"no key is proposed, because the evidence is weak ({weak}): {remedy}"
