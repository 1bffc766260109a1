"""What a reviewer types, as the question that the trail is asked: names checked, times and tasks looked up (AUD-06).

Rules: EFF-05 (a time carries an offset), SUR-03. A word that is none of the known ones is refused, never taken for
"nothing found".
Next: `issuer.commands.auditing`.
"""

import hmac
import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Final, TypedDict

from audit.queries import DECISIONS, Question
from issuer.flow.reference import effect_reference
from issuer.flow.refusing import RefusedError
from issuer.house import Visit
from issuer.periods import instant_asked
from issuer.sealing import Purpose
from ledger.canonical import canonical_bytes
from ledger.errors import Malformed
from ledger.model import TASK_ID_PATTERN, InstantMs, TaskId, Tier
from ledger.port import View
from ledger.questions import SpanFilter
from ledger.refusals import RefusalCode
from ledger.states import EffectState
from ledger.transitions import TransitionName

LIMIT: Final = 100
LIMIT_MAX: Final = 10_000
"""Rows of one page: some ten megabytes of spans."""

_ASKED_DOMAIN: Final = b"permit-issuer/asked/v1\x00"
_PREFIX: Final = "permit."
_ENTITY: Final = re.compile(r'([A-Za-z_][A-Za-z0-9_:]*)::"(.*)"\Z', re.DOTALL)
_CURSOR: Final = re.compile(r"(0|[1-9][0-9]{0,15})(?:\.(eff_[0-9a-f]{32}))?\Z", re.ASCII)
_ANSWERS: Final = frozenset({TransitionName.EFFECT_APPROVED, TransitionName.EFFECT_DECLINED})


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditAsk:
    """What is asked for; what is None is not asked about.

    Attributes:
        since, until: from when on, and before when, as `issuer.periods` reads it.
        task: a name or an id.
        resource: its id, or `Type::"id"` as answers show it.
        state: into which an effect was moved.
        decision: a key of `audit.queries.DECISIONS`.
        approver: whose signed yes or no.
        name: a kind of span, such as `effect.admitted`.
        tier: `issue` or `approval`.
        limit: rows of a page, 1 to `LIMIT_MAX`.
        after: the cursor of the page before, or 0.
        newest: the latest first.
    """

    since: str | None = None
    until: str | None = None
    subject: str | None = None
    actor: str | None = None
    task: str | None = None
    resource: str | None = None
    operation: str | None = None
    state: str | None = None
    decision: str | None = None
    policy: str | None = None
    approver: str | None = None
    name: str | None = None
    effect: str | None = None
    tier: str | None = None
    limit: int = LIMIT
    after: int | str = 0
    newest: bool = False

    def digest(self, visit: Visit) -> str:
        """Return a keyed hash of what was asked for, in hex; with values, a look would be a span about them.

        Keyed, since a name that is not public may be asked for, and could be guessed from a plain one (SEC-01).
        """
        asked = {name: value for name, value in asdict(self).items() if value not in (None, 0, False)}
        subkey = visit.house.ring.subkey(Purpose.REPETITION)
        said = _ASKED_DOMAIN + canonical_bytes({"command": visit.command, "asked": asked})
        return hmac.digest(subkey, said, "sha256").hex()


class Asked(TypedDict, total=False):
    """The attributes of `AuditAsk` as arguments by name."""

    since: str | None
    until: str | None
    subject: str | None
    actor: str | None
    task: str | None
    resource: str | None
    operation: str | None
    state: str | None
    decision: str | None
    policy: str | None
    approver: str | None
    name: str | None
    effect: str | None
    tier: str | None
    limit: int
    after: int | str
    newest: bool


def question_of(visit: Visit, ask: AuditAsk) -> Question:
    """Return what the trail is asked.

    Raises:
        Malformed: a value has no such form, or is none of the known words.
        RefusedError: there is no such task.
    """
    if not 1 <= ask.limit <= LIMIT_MAX:
        raise Malformed("out_of_range", "limit", f"a page has 1 to {LIMIT_MAX} rows")
    after, after_effect = _cursor(ask.after)
    kind, resource = _resource(ask.resource)
    wanted = SpanFilter(
        story=None if ask.effect is None else _effect(ask.effect),
        actor=ask.actor,
        subject=ask.subject,
        task=None if ask.task is None else task_asked(visit, ask.task),
        operation=ask.operation,
        resource=resource,
        signer=ask.approver,
        policy=ask.policy,
        names=_names(ask),
        states=frozenset() if ask.state is None else frozenset({EffectState(_state(ask.state))}),
        since_ms=instant_of(visit, ask.since, "since"),
        until_ms=instant_of(visit, ask.until, "until"),
    )
    return Question(
        wanted=wanted,
        tier=None if ask.tier is None else _one_of(ask.tier, Tier, "tier"),
        resource_type=kind,
        newest=ask.newest,
        after=after,
        after_effect=after_effect,
        limit=ask.limit,
    )


def cursor_text(cursor: tuple[int, str]) -> int | str:
    """Return a cursor as answers show it and `after` takes it: a sequence, or with which effect of it was last."""
    sequence, effect = cursor
    return f"{sequence}.{effect}" if effect else sequence


def _cursor(text: int | str) -> tuple[int, str]:
    found = _CURSOR.match(str(text))
    if found is None:
        raise Malformed("out_of_range", "after", "a cursor is the one that the page before gave")
    return int(found[1]), found[2] or ""


def instant_of(visit: Visit, text: str | None, field: str) -> InstantMs | None:
    """Return the instant that a text names in the owner's zone, or None where none is asked about.

    Raises:
        Malformed: as `issuer.periods.instant_asked`.
    """
    if text is None:
        return None
    return instant_asked(text, field, now=visit.house.now(), timezone=visit.house.profile.timezone)


def task_asked(visit: Visit, text: str) -> TaskId:
    """Return the id of the task of that name or id.

    Raises:
        RefusedError: `unknown_reference`.
    """

    def look(view: View) -> TaskId | None:
        found = view.task(TaskId(text)) if TASK_ID_PATTERN.match(text) else view.task_named(text)
        return None if found is None else found.task_id

    found = visit.house.ledger.read(look)
    if found is None:
        raise RefusedError(RefusalCode.UNKNOWN_REFERENCE, field="task")
    return found


def _effect(text: str) -> str:
    effect = effect_reference(text)
    if effect is None:
        raise Malformed("not_an_id", "effect", "an effect is named by its id")
    return effect


def _resource(text: str | None) -> tuple[str | None, str | None]:
    found = None if text is None else _ENTITY.match(text)
    return (None, text) if found is None else (found[1], found[2])


def _state(text: str) -> str:
    return _one_of(text, EffectState, "state")


def _one_of(text: str, known: Iterable[str], field: str) -> str:
    words = [str(word) for word in known]
    if text not in words:
        raise Malformed("not_one_of", field, f"{field} is one of {', '.join(words)}")
    return text


def _names(ask: AuditAsk) -> frozenset[TransitionName]:
    """Return the kinds of span that all of decision, name and approver leave.

    Raises:
        Malformed: they leave none.
    """
    left: frozenset[TransitionName] | None = None
    if ask.name is not None:
        left = frozenset({TransitionName(_one_of(ask.name.removeprefix(_PREFIX), TransitionName, "name"))})
    if ask.decision is not None:
        decided = frozenset({DECISIONS[_one_of(ask.decision, DECISIONS, "decision")]})
        left = decided if left is None else left & decided
    elif left is None and ask.approver is not None:
        left = _ANSWERS
    if left is None:
        return frozenset()
    if not left:
        raise Malformed("not_one_of", "decision", "no span of that name tells of such a decision")
    return left


__all__ = ["LIMIT", "LIMIT_MAX", "Asked", "AuditAsk", "instant_of", "question_of", "task_asked"]
