"""The standing questions whose answers are more than spans: what came after a no, what was never used, whose yes.

Rules: AUD-06, APP-03 (nobody approves for themselves; who tried stands here), LED-07 (the ledger finds them by its
indexes). Pure over a view of the ledger, page by page, with cursors as in `audit.queries`. What counts as one of them
is written where it is asked.
Next: `issuer.commands.standing_questions` shows them.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final, Generic, TypeVar

from audit.queries import PAGE_ROWS, VISITED_MAX, Found, Question, ask, found_of
from ledger.model import Amounts, EffectId
from ledger.port import View
from ledger.questions import DeniedThenDone, SpanFilter, UnusedPermit
from ledger.refusals import RefusalCode
from ledger.transitions import TransitionName

__all__ = [
    "Answered",
    "Part",
    "PersonAnswer",
    "ThenDone",
    "Unused",
    "denied_then_done",
    "person_answer",
    "person_answers",
    "unused",
]

S = TypeVar("S")
T = TypeVar("T")

Cursor = tuple[int, str]
"""The sequence that was told last, and which effect of it, where one span has many; else an empty text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part(Generic[T]):
    """A page of answers; `cursor` is where it goes on, or None where this was the end."""

    rows: tuple[T, ...]
    cursor: Cursor | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ThenDone:
    """A no, and what was done all the same soon after.

    Attributes:
        no: the denial or refusal.
        done: the first admission or success after it, in time, for the same subject, operation and resource.
        permit: by what that was permitted.
    """

    no: Found
    done: Found
    permit: Found | None


def denied_then_done(view: View, question: Question, *, within_ms: int) -> Part[ThenDone]:
    """Answer what was denied or refused, and then admitted or done within `within_ms` milliseconds, by whomever.

    A success does not count where its effect was admitted before the no and the no was about that very effect: it only
    came home. Nor does a no to a person's answer, which is among `person_answers`.

    Raises:
        LedgerCorrupt: a span is not what was recorded.
    """

    def read(after: Cursor, limit: int) -> list[DeniedThenDone]:
        found = view.denied_then_done(question.wanted, window_ms=within_ms, after=after[0], limit=limit)
        return [*found]

    def made(pair: DeniedThenDone) -> ThenDone | None:
        no = found_of(pair.denied)
        if no.text("command") in _OF_PEOPLE:
            return None
        done = next((one for one in map(found_of, pair.done) if _is_of(view, no, one)), None)
        return None if done is None else ThenDone(no=no, done=done, permit=permit_of(view, done))

    return _part(question, read, lambda pair: (pair.denied.position.sequence, ""), made)


_OF_PEOPLE: Final = frozenset({"approve", "decline", "statement"})
_SAME: Final = ("subject", "operation", "resource.type", "resource.id")


def _is_of(view: View, no: Found, done: Found) -> bool:
    """Say whether something done is what was denied, and was not under way before in the very same effect."""
    if any(no.said(name) is None or no.said(name) != done.said(name) for name in _SAME):
        return False
    effect = done.text("effect.id")
    if effect != no.text("effect.id") or done.entry.name == TransitionName.EFFECT_ADMITTED:
        return True
    begun = _of_story(view, effect, TransitionName.EFFECT_ADMITTED)
    return begun is None or begun.sequence > no.sequence


def permit_of(view: View, found: Found) -> Found | None:
    """Return the span of the permit that a span's effect has; None where it never had one."""
    return _of_story(view, found.text("effect.id"), TransitionName.EFFECT_PERMITTED)


def _of_story(view: View, story: str | None, name: TransitionName) -> Found | None:
    if story is None:
        return None
    rows = view.find_spans(SpanFilter(story=story, names=frozenset({name})), limit=1, newest_first=True)
    return found_of(rows[0]) if rows else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Unused:
    """A permit that nothing was done with.

    Attributes:
        told: as the ledger tells it: `state` is `permitted` where it still waits, else how it ended.
        permit: the span of its issuing.
        end: the span of its end, or None while it waits.
        cost: its maximum cost; None where the effect was collected.
    """

    told: UnusedPermit
    permit: Found
    end: Found | None
    cost: Amounts | None


def unused(view: View, question: Question) -> Part[Unused]:
    """Answer what was permitted and never admitted: it waits still, or expired, was withdrawn or revoked.

    They stand in the order of what last became of them; a period is one of that.

    Raises:
        LedgerCorrupt: a span is not what was recorded.
    """

    def read(after: Cursor, limit: int) -> list[UnusedPermit]:
        return [*view.permits_unused(after=after, limit=limit)]

    def made(told: UnusedPermit) -> Unused | None:
        wanted = question.wanted
        asked = (
            (wanted.actor, told.actor),
            (wanted.subject, told.subject),
            (wanted.task, told.task_id),
            (wanted.operation, told.operation),
        )
        if any(one is not None and one != other for one, other in asked):
            return None
        permit = _of_story(view, told.effect_id, TransitionName.EFFECT_PERMITTED)
        if permit is None or not question.takes(permit) or not _has(permit, wanted):
            return None
        end = _end_of(view, told.effect_id, permit)
        if not _is_within(end or permit, wanted):
            return None
        effect = view.effect(told.effect_id)
        return Unused(told=told, permit=permit, end=end, cost=None if effect is None else effect.cost)

    return _part(question, read, lambda told: (told.sequence, told.effect_id), made)


def _has(permit: Found, wanted: SpanFilter) -> bool:
    policies = permit.texts("policy.ids")
    return (wanted.resource is None or permit.text("resource.id") == wanted.resource) and (
        wanted.policy is None or wanted.policy in policies
    )


def _is_within(found: Found, wanted: SpanFilter) -> bool:
    at = found.row.at_ms
    return (wanted.since_ms is None or at >= wanted.since_ms) and (
        wanted.until_ms is None or at < wanted.until_ms
    )


def _end_of(view: View, effect_id: EffectId, permit: Found) -> Found | None:
    """Return the span that ended an effect after its permit; None while it waits."""
    rows = view.find_spans(SpanFilter(story=effect_id), after=permit.sequence, limit=PAGE_ROWS)
    return next((one for one in map(found_of, rows) if one.entry.state_to is not None), None)


class Answered(StrEnum):
    """What became of a person's answer."""

    YES = "yes"
    NO = "no"
    LATE = "late"
    SELF = "self"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True, kw_only=True)
class PersonAnswer:
    """One answer of a person, or an attempt at one; `person` is None where no signature proves whose."""

    found: Found
    person: str | None
    answered: Answered


_ANSWERS: Final = frozenset(
    {TransitionName.EFFECT_APPROVED, TransitionName.EFFECT_DECLINED, TransitionName.REFUSED}
)
_COMMANDS: Final = frozenset({"approve", "decline"})
_OWN: Final = frozenset({"subject", "answers_to", "caller"})
_LATE: Final = frozenset(
    map(
        str,
        (
            *(RefusalCode.EXPIRED, RefusalCode.TOO_LATE, RefusalCode.WITHDRAWN, RefusalCode.REVOKED),
            *(RefusalCode.DECLINED, RefusalCode.DENIED, RefusalCode.COLLECTED),
        ),
    )
)


def person_answers(view: View, question: Question) -> Part[PersonAnswer]:
    """Answer who said yes or no to what, who came too late, and who tried to say yes to their own.

    Raises:
        LedgerCorrupt: a span is not what was recorded.
    """
    asked = replace(question, wanted=replace(question.wanted, names=_ANSWERS), limit=PAGE_ROWS)

    def read(after: Cursor, _limit: int) -> list[Found]:
        page = ask(view, replace(asked, after=after[0]))
        found = [*page.found]
        # A page that is short since it looked at enough is not the last one.
        while page.cursor is not None and len(found) < PAGE_ROWS:
            page = ask(view, replace(asked, after=page.cursor))
            found += page.found
        return found

    return _part(question, read, lambda found: (found.sequence, ""), person_answer)


def person_answer(found: Found) -> PersonAnswer | None:
    """Return whose answer a span tells of and what became of it; None where it tells of none."""
    person = found.text("signer")
    if found.entry.name == TransitionName.EFFECT_APPROVED:
        return PersonAnswer(found=found, person=person, answered=Answered.YES)
    if found.entry.name == TransitionName.EFFECT_DECLINED:
        return PersonAnswer(found=found, person=person, answered=Answered.NO)
    if found.entry.name != TransitionName.REFUSED or found.text("command") not in _COMMANDS:
        return None
    refusal, field = found.text("refusal"), found.text("refusal.field")
    if refusal == RefusalCode.FORBIDDEN and field in _OWN:
        return PersonAnswer(found=found, person=person, answered=Answered.SELF)
    answered = Answered.LATE if refusal in _LATE else Answered.REFUSED
    return PersonAnswer(found=found, person=person, answered=answered)


def _part(
    question: Question,
    read: Callable[[Cursor, int], list[S]],
    cursor_of: Callable[[S], Cursor],
    made: Callable[[S], T | None],
) -> Part[T]:
    """Return one page of what `made` makes of what `read` finds behind a sequence; nothing of it is left out."""
    rows: list[T] = []
    last: Cursor = (question.after, question.after_effect)
    visited = 0
    while page := read(last, PAGE_ROWS):
        for one in page:
            row = made(one)
            if row is not None and len(rows) == question.limit:
                return Part(rows=tuple(rows), cursor=last)
            last, visited = cursor_of(one), visited + 1
            if row is not None:
                rows.append(row)
            if visited == VISITED_MAX:
                return Part(rows=tuple(rows), cursor=last)
        if len(page) < PAGE_ROWS:
            break
    return Part(rows=tuple(rows), cursor=None)
