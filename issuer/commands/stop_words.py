"""What can be stopped, by which name and why: the words of `revoke`, `freeze` and `thaw`, read and checked.

Rules: SUR-02 (a name that stands for nothing is refused, never stopped in silence), SEC-01 (a reason is one of a closed
list), SEC-02 (no agent stops or thaws anything). It changes nothing.
Next: `issuer.commands.freezing` and `issuer.commands.revoking`.
"""

from collections.abc import Collection, Mapping, Sequence
from enum import StrEnum
from typing import Final

from issuer.caller import refuse_agent
from issuer.flow import spans
from issuer.flow.dispatch import confirmed
from issuer.flow.refusing import RefusedError, unknown_name
from issuer.house import House, Visit
from issuer.profile import Profile
from ledger.authority import Ruling, RulingKind, StopKind, stop_name
from ledger.changes import RulingMade, Step
from ledger.errors import Malformed
from ledger.model import NAME_PATTERN, Effect
from ledger.port import View
from ledger.states import EffectState
from ledger.transitions import AttributeValue, Transition, TransitionName

SHOWN_MAX: Final = 100
"""How many effects an answer names; it counts all of them."""

TASK: Final = "task"


class Reason(StrEnum):
    """Why something is stopped, or not any more."""

    COMPROMISED = "compromised"
    MISTAKEN = "mistaken"
    SUPERSEDED = "superseded"
    LEFT = "left"
    OTHER = "other"


def demand_person(visit: Visit) -> None:
    """Refuse a host or an actor, whatever its credential: stopping is an act of people (SEC-02).

    Raises:
        RefusedError: `forbidden`.
    """
    no = refuse_agent(visit.caller)
    if no is not None:
        raise RefusedError(no.code, field=no.field)


def read_reason(reason: str) -> str:
    """Return a reason of the closed list.

    Raises:
        Malformed: it is none.
    """
    try:
        return str(Reason(reason))
    except ValueError:
        raise Malformed("not_one_of", "reason", f"a reason is one of {', '.join(Reason)}") from None


def read_kind(kind: str, known: Sequence[str]) -> StopKind | str:
    """Return the kind of what is stopped: a `StopKind`, or another of the words that a command knows.

    Raises:
        Malformed: it is none of `known`.
    """
    if kind not in known:
        raise Malformed("not_one_of", "kind", f"what is named here is one of {', '.join(known)}")
    return StopKind(kind) if kind in set(StopKind) else kind


def demand_name(kind: str, name: str | None) -> str:
    """Return a name that has to be there.

    Raises:
        Malformed: there is none.
    """
    if type(name) is not str or not name:
        raise Malformed("missing", "name", f"say which {kind}")
    return name


def read_stop(house: House, kind: StopKind, name: str | None) -> str:
    """Return the name of the ruling about what is stopped; one that has a ruling is known without the profile.

    Raises:
        RefusedError: `unknown_reference`; the owner has declared nothing of that name.
        Malformed: a name is missing, or stands beside `all`.
    """
    if kind is StopKind.ALL:
        if name is not None:
            raise Malformed("unexpected", "name", "all is everything, and takes no name")
        return stop_name(kind, "")
    wanted = demand_name(kind, name)
    known = _declared(house.profile)[kind]
    if wanted in known:
        return stop_name(kind, wanted)
    is_name = NAME_PATTERN.match(wanted) is not None
    if is_name and house.ledger.read(lambda view: _ruling(view, stop_name(kind, wanted))):
        return stop_name(kind, wanted)
    raise unknown_name(house, str(kind), wanted, known, say=f"The owner has declared no {kind} of that name.")


def _ruling(view: View, name: str) -> Ruling | None:
    return view.ruling(RulingKind.STOP, name)


def _declared(profile: Profile) -> Mapping[StopKind, Collection[str]]:
    return {
        StopKind.PERSON: profile.people,
        StopKind.ACTOR: profile.actors,
        StopKind.HOST: profile.hosts,
        StopKind.OPERATION: profile.operations,
        StopKind.CLASS: profile.classes,
    }


def ruling_step(
    visit: Visit, transition: TransitionName, ruling: Ruling, said: Mapping[str, AttributeValue]
) -> Step:
    """Return the step that makes a ruling; its story is the ledger's."""
    attributes = {**spans.common(visit), **{f"permit.{name}": value for name, value in said.items()}}
    story = visit.house.ledger.ledger_id
    return Step(
        transition=Transition(name=transition, story=story, attributes=attributes),
        changes=(RulingMade(ruling=ruling),),
    )


def noted(house: House, sequence: int) -> str:
    """Bring a stop to the sinks and return "", or the sentence that says that they have not taken note of it.

    It is in force either way. A ledger that is restored from a backup knows it from a sink alone (LED-08).
    """
    if confirmed(house, sequence):
        return ""
    return "It is in force; but no audit sink has taken note of it yet, so a restored ledger would not know of it."


def late_rows(effects: Sequence[Effect]) -> dict[str, object]:
    """Return what an answer says of effects that may have been sent: how many, and the first of them."""
    rows = [{"effect": one.effect_id, "state": str(one.state)} for one in effects[:SHOWN_MAX]]
    return {"too_late": rows, "too_late_count": len(effects)}


def late_say(effects: Sequence[Effect]) -> str:
    """Return the sentence about effects that may have been sent; empty where there is none."""
    if not effects:
        return ""
    sending = sum(one.state is EffectState.ADMITTED for one in effects)
    one = "1 effect was" if len(effects) == 1 else f"{len(effects)} effects were"
    return f"{one} admitted before and may have been sent ({sending} still open): look at them."
