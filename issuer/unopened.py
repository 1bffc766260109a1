"""Who may give an act that opens no issuer: `activate`, `ledger backup` and `ledger restore` (SEC-02, POL-01).

Rules, in the order of `issuer.commands.roles`:
  1. a host or an actor may not   2. a signature that came with it is good, in time and not used before   3. in strict
  there is one   4. the policies in force allow it: always asked in strict; in ordinary where the caller is a person of
  the profile and some policy names `activate`.
Where no revision was ever in force, or none can be read, there are no policies to ask: ordinary goes on, and strict
still demands the signature of a person whose key is in force. Next: `issuer.flow.signed_act.once` under the lock.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from issuer import answering
from issuer.caller import Caller, CallerKind, person_caller, refuse_agent
from issuer.errors import SetupError
from issuer.flow.signed_act import Signing, act_statement, people_of, refuse_used, verified
from issuer.flow.stops import suspended_names
from issuer.grounds import Ground
from issuer.house import Signed, SignedText
from issuer.places import Places
from issuer.profile import ProfileRefused
from issuer.revised import REVISION, RevisedLedger
from issuer.sealing import KeyRing
from issuer.terms import terms_of
from issuer.wire import Answer
from issuer.wiring import open_ledger
from ledger.authority import StopKind
from ledger.changes import Step
from ledger.errors import Fault
from ledger.model import InstantMs, LedgerId
from ledger.port import Ledger, Verdict, View
from ledger.refusals import Refusal, RefusalCode
from ledger.transitions import AttributeValue, Transition, TransitionName
from policies import ActFacts, BundleRefused, EngineUnfit, may_act

ACTIVATE: Final = "activate"
"""The Cedar action that all three are asked about."""

_UNUSABLE = (ProfileRefused, BundleRefused, EngineUnfit, SetupError, ValueError)
_NO_KEYS: Final = (
    "This takes a person's signature, and no file that is in force says whose: bring back profile, policies, "
    "registries and people's keys as they were activated last, and give it again."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Act:
    """What came with an act: a signature, or None; `is_strict` as `issuer.house.House.is_strict`."""

    text: SignedText | None = None
    is_strict: bool = False


UNSIGNED: Final = Act()


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """An act that may be done: what it goes by, who does it, and whose signature it uses."""

    ground: Ground
    caller: Caller
    signed: Signed | None = None

    @property
    def attributes(self) -> dict[str, AttributeValue]:
        """What every span of the act says of mode, caller and signature."""
        said: dict[str, AttributeValue] = {"permit.caller": self.caller.name}
        if self.ground.mode:
            said["permit.mode"] = self.ground.mode
        if self.signed is not None:
            said["permit.signer"] = self.signed.person
            said["permit.statement.digest"] = self.signed.digest
        return said


class ActRefused(Exception):  # noqa: N818 - an answer, and no fault
    """The no to an act, with all that its answer and its span say."""

    def __init__(self, given: Given, command: str, refusal: Refusal, say: str = "") -> None:
        """Carry the no; `given` is as far as it got."""
        super().__init__()
        self.given = given
        self.command = command
        self.refusal = refusal
        self.say = say

    @property
    def answer(self) -> Answer:
        """The answer of the no."""
        named = {} if self.refusal.field is None else {"field": self.refusal.field}
        say = answering.refusal_say(self.refusal, self.say)
        ground = self.given.ground
        code = str(self.refusal.code)
        return Answer(issuer=ground.issuer, code=code, mode=ground.mode, say=say, more=dict(named))

    def recorded(self, ledger: Ledger | None) -> "ActRefused":
        """Put the no on record where there is a ledger that takes it; it stands all the same."""
        if ledger is None:
            return self
        said = {
            **self.given.attributes,
            "permit.command": self.command,
            "permit.refusal": str(self.refusal.code),
        }
        if self.given.ground.revision is not None:
            said[REVISION] = self.given.ground.revision
        if self.refusal.field is not None:
            said["permit.refusal.field"] = self.refusal.field
        transition = Transition(name=TransitionName.REFUSED, story=ledger.ledger_id, attributes=said)

        def decide(_view: View, _now: InstantMs) -> Verdict[None]:
            return Verdict(value=None, steps=(Step(transition=transition),))

        with suppress(Fault):
            RevisedLedger(ledger, None).record(decide)
        return self


def on_record(no: ActRefused, places: Places, ring: KeyRing) -> ActRefused:
    """Put a no on record in the ledger of an issuer that is not open, where that can be; return it."""
    try:
        ledger = open_ledger(places, ring)
    except Fault:
        return no
    try:
        return no.recorded(ledger)
    finally:
        ledger.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """What judges one act: the command, the ground, and the ledger that tells of challenges and stops, if any."""

    command: str
    ground: Ground
    places: Places
    ring: KeyRing
    ledger: Ledger | None
    now: Callable[[], InstantMs]
    asks: bool = True
    """Whether the policies of the ground are in force; those of a backup are not, and only strict asks them."""

    def first(self, act: Act) -> Given:
        """Judge 1, and where no signature came 3 and 4 as well: before anything is read that the act is about.

        Raises:
            ActRefused: the no.
        """
        given = Given(ground=self.ground, caller=self.ground.caller)
        no = refuse_agent(given.caller)
        if no is not None:
            raise ActRefused(given, self.command, no)
        return given if act.text is not None else self._allowed(given)

    def whole(self, act: Act, arguments: Mapping[str, object]) -> Given:
        """Judge 1 to 4 of an act with exactly these arguments.

        Raises:
            ActRefused: the no.
        """
        given = self.first(act)
        if act.text is None:
            return given
        found = verified(self.signing(), self.command, arguments, act.text)
        if isinstance(found, Refusal):
            raise ActRefused(given, self.command, found)
        profile = self.ground.profile
        caller = given.caller
        if profile is not None:
            caller = person_caller(profile, found.person, caller.account)
        given = Given(ground=self.ground, caller=caller, signed=found)
        ledger = self.ledger
        used = None if ledger is None else ledger.read(lambda view: refuse_used(view, found, self.now()))
        if used is not None:
            raise ActRefused(given, self.command, used)
        return self._allowed(given)

    def statement(self, arguments: Mapping[str, object], person: str) -> str:
        """Return what `person` signs for this act with these arguments.

        Raises:
            RefusedError: nobody of that name is in force.
        """
        return act_statement(self.signing(), self.command, arguments, person)

    def signing(self) -> Signing:
        """Return what statements are judged by here; without a profile in force nobody has a key."""
        profile = self.ground.profile
        return Signing(
            issuer=self.ground.issuer,
            ledger_id=LedgerId(self.ground.ledger_id),
            epoch=self.ground.epoch,
            ring=self.ring,
            people={} if profile is None else people_of(profile),
            now=self.now,
        )

    def _allowed(self, given: Given) -> Given:
        is_strict = self.ground.mode == "strict"
        if is_strict and given.signed is None:  # 3
            say = _NO_KEYS if self.ground.profile is None else ""
            raise ActRefused(given, self.command, Refusal(code=RefusalCode.SIGNATURE_NEEDED), say)
        no = self._by_policy(given, is_strict=is_strict)  # 4
        if no is not None:
            raise ActRefused(given, self.command, no)
        return given

    def _by_policy(self, given: Given, *, is_strict: bool) -> Refusal | None:
        """Ask the policies; in ordinary, those that cannot be read are no obstacle: activating replaces them."""
        files = self.ground.files
        is_in_force = self.asks and not self.ground.is_former
        if files is None or given.caller.kind is not CallerKind.PERSON or not (is_strict or is_in_force):
            return None
        is_suspended = self.ledger is not None and self._is_suspended(self.ledger, given.caller.name)
        suspended = Refusal(code=RefusalCode.FORBIDDEN, field=ACTIVATE)
        if (
            is_suspended and self.command == ACTIVATE
        ):  # whatever a bundle says: a suspended owner rules nothing
            return suspended
        try:
            terms = terms_of(files, self.places, operations=False)
        except _UNUSABLE:
            return Refusal(code=RefusalCode.POLICY_ERROR, field=ACTIVATE) if is_strict else None
        if not is_strict and not terms.bundle.names_action(ACTIVATE):
            return None
        if is_suspended:
            return suspended
        facts = ActFacts(person=given.caller.name, action=ACTIVATE, command=self.command, now_ms=self.now())
        decision = may_act(terms.bundle, terms.directory, facts)
        if decision.allowed:
            return None
        code = RefusalCode.POLICY_ERROR if decision.errors else RefusalCode.FORBIDDEN
        return Refusal(code=code, field=ACTIVATE)

    @staticmethod
    def _is_suspended(ledger: Ledger, person: str) -> bool:
        return (StopKind.PERSON, person) in ledger.read(suspended_names)


__all__ = ["ACTIVATE", "UNSIGNED", "Act", "ActRefused", "Gate", "Given", "on_record"]
