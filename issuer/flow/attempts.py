"""What was tried to learn the truth about an effect, and when its sender was certainly over: read from its own trail.

Rules: REC-06 (each attempt is on record, begun and ended), REC-02 and ADM-07 (a sender is gone when it said itself
that its sending is over, or when its process is provably gone; a stopped one is not), REC-03 (a resend is a sending).
An attempt that has no end on record may still be under way, whoever made it.
Next: `issuer.flow.reconcile` asks under the lock.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from audit import TimelineEntry, timeline
from issuer.flow.settle import WINNER_REASONS
from issuer.house import House
from ledger.model import Claim, Effect, EffectId, EvidenceClass, InstantMs
from ledger.port import View
from ledger.transitions import TransitionName

SENDER_GONE: Final = "sender_gone"
"""The reason on record where a sender's process was seen to be gone."""

_BEGINS: Final = str(TransitionName.EFFECT_INSPECTING)
_WORDS: Final = frozenset({str(TransitionName.EFFECT_UNKNOWN), str(TransitionName.EFFECT_REPORTED)})
_OF_A_WINNER: Final = frozenset(
    str(one) for one in (EvidenceClass.SERVICE, EvidenceClass.NONE, EvidenceClass.NOT_SENT)
)


class AttemptKind(StrEnum):
    """How the truth is looked for: by asking, or by sending again under the same key (REC-03)."""

    INSPECT = "inspect"
    RESEND = "resend"


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptRecord:
    """One attempt as the trail tells it.

    Attributes:
        instance: the process that made it.
        ended_ms: when its end was recorded; None where no end is on record.
        seen, reason: what it saw and what came of that; empty until it ended.
    """

    kind: AttemptKind
    instance: str
    began_ms: InstantMs
    deadline_ms: InstantMs
    ended_ms: InstantMs | None = None
    seen: str = ""
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    """What the trail of one effect tells about its sending and about attempts to learn its outcome.

    Attributes:
        sending_over_ms: when the winner itself said that its sending is over, or its process was first seen to be
            gone; None where neither is on record.
    """

    attempts: tuple[AttemptRecord, ...]
    sending_over_ms: InstantMs | None

    @property
    def open_resends(self) -> tuple[AttemptRecord, ...]:
        """The resends that no end is on record of."""
        return tuple(one for one in self.attempts if one.kind is AttemptKind.RESEND and one.ended_ms is None)


def story_of(view: View, effect_id: EffectId) -> Story:
    """Return what the trail tells of an effect.

    Raises:
        LedgerCorrupt: a span of it is not what was recorded.
    """
    return told(timeline(view, effect_id))


def told(entries: Sequence[TimelineEntry]) -> Story:
    """Return the same from spans in order. An end belongs to the oldest open attempt of its kind and process."""
    attempts: list[AttemptRecord] = []
    over: InstantMs | None = None
    for entry in entries:
        said = entry.attributes
        instance, word = str(said.get("permit.instance", "")), said.get("permit.attempt")
        if entry.name == _BEGINS:
            deadline = said.get("permit.deadline_ms")
            attempts.append(
                AttemptRecord(
                    kind=AttemptKind(str(word)),
                    instance=instance,
                    began_ms=entry.at_ms,
                    deadline_ms=InstantMs(deadline if type(deadline) is int else entry.at_ms),
                )
            )
        elif word is not None:
            _end(attempts, AttemptKind(str(word)), instance, entry)
        elif over is None and _says_over(entry):
            over = entry.at_ms
    return Story(attempts=tuple(attempts), sending_over_ms=over)


def _end(attempts: list[AttemptRecord], kind: AttemptKind, instance: str, entry: TimelineEntry) -> None:
    for number, one in enumerate(attempts):
        if one.kind is kind and one.ended_ms is None and instance in {one.instance, ""}:
            seen, reason = (str(entry.attributes.get(f"permit.{name}", "")) for name in ("seen", "reason"))
            attempts[number] = replace(one, ended_ms=entry.at_ms, seen=seen, reason=reason)
            return


def _says_over(entry: TimelineEntry) -> bool:
    """Say whether a span tells that the sending of the admission is over, for certain."""
    reason = entry.attributes.get("permit.reason")
    if entry.name not in _WORDS:
        return False
    if reason == SENDER_GONE:
        return True
    return reason in WINNER_REASONS and entry.attributes.get("permit.evidence.class") in _OF_A_WINNER


@dataclass(frozen=True, slots=True, kw_only=True)
class Gone:
    """Which senders of one effect are provably gone, asked before the lock: true for good once true.

    Attributes:
        winner: whether the process that holds the claim is.
        resenders: the processes that began a resend without an end on record, and are.
    """

    winner: bool
    resenders: frozenset[str]


def gone_of(house: House, claim: Claim | None, story: Story) -> Gone:
    """Look at the lock of each process that may still be sending."""
    names = {one.instance for one in story.open_resends}
    return Gone(
        winner=claim is not None and house.instance.is_gone(claim.instance, claim.boot),
        resenders=frozenset(name for name in names if house.instance.is_gone(name, "")),
    )


def sending_ended(claim: Claim | None, story: Story, now: InstantMs) -> InstantMs | None:
    """Return the instant at which the last sender was certainly over, or None where one may still send (ADM-07).

    A host outside has its deadline and nothing else. What a process's own end proves has to be on record first.
    """
    if claim is None or story.open_resends:
        return None
    winner = story.sending_over_ms
    if not claim.instance:
        winner = claim.deadline_ms if now >= claim.deadline_ms else None
    if winner is None:
        return None
    resends = [
        at
        for one in story.attempts
        if one.kind is AttemptKind.RESEND
        for at in (one.deadline_ms, one.ended_ms or one.deadline_ms)
    ]
    return InstantMs(max(winner, *resends)) if resends else winner


def is_resend_in_flight(story: Story, now: InstantMs) -> bool:
    """Say whether a resend may still be under way: within the deadline of the last one, whatever became of it."""
    return any(one.kind is AttemptKind.RESEND and now < one.deadline_ms for one in story.attempts)


def attempts_on(view: View, effect: Effect) -> tuple[AttemptRecord, ...]:
    """Return the attempts on `effect`, oldest first; most effects have none, which costs little to see."""
    if not any(row.name == _BEGINS for row in view.story(effect.effect_id)):
        return ()
    return story_of(view, effect.effect_id).attempts
