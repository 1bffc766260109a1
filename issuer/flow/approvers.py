"""Whose yes counts for an effect, now? Asked of everybody who says yes, and of each of them again at admission.

Rules: APP-01 (an admitted approver with a registered key), APP-03 (duties are separated by the core in every mode, and
no policy overrides that; different people for different places), POL-05 (`approve` is asked again for every counted
approver), SEC-03 (a revoked key counts for nothing). In order, for one person:
  1. declared, with the role `approver`, not stopped, nor revoked since the effect was prepared
  2. neither the subject, nor who the actor answers to, nor who asked
  3. the key that signed still is this person's, and not revoked   4. the signature still opens the statement
  5. a member of a group that is asked   6. the policy `approve` says yes, for that group.
It reads and writes nothing else. Next: `issuer.flow.approve` and `issuer.flow.admit`.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from issuer.flow.statements import registered_keys, statement_digest
from issuer.house import House, Locked
from issuer.sealing import SignatureRefused, signer_of
from ledger.authority import Approval, RulingKind, Stop, StopKind, is_quorum, stop_name
from ledger.model import Effect, InstantMs
from ledger.port import View
from ledger.refusals import Refusal, RefusalCode
from policies import ApprovalFacts, FactsRefused, may_approve

ROLE = "approver"


@dataclass(frozen=True, slots=True, kw_only=True)
class Counted:
    """Whose yes counts.

    Attributes:
        known: by person, the groups that are asked and that the person is in, whatever policies say.
        allowed: the same, as far as the policy `approve` says yes.
        has_errors: whether a policy could not be evaluated about somebody.
    """

    known: Mapping[str, frozenset[str]]
    allowed: Mapping[str, frozenset[str]]
    has_errors: bool

    def refusal(self, wanted: Mapping[str, int]) -> Refusal | None:
        """Return why this is no quorum of `wanted`, or None where it is one (POL-05)."""
        if is_quorum(wanted, self.allowed):
            return None
        if self.has_errors:
            return Refusal(code=RefusalCode.POLICY_ERROR, field="approval")
        code = RefusalCode.DENIED if is_quorum(wanted, self.known) else RefusalCode.REVOKED
        return Refusal(code=code, field="approval")


def all_wanted(*quorums: Mapping[str, int]) -> dict[str, int]:
    """Return one quorum that satisfies each of some: of every group the largest number."""
    wanted: dict[str, int] = {}
    for quorum in quorums:
        for group, count in quorum.items():
            wanted[group] = max(wanted.get(group, 0), count)
    return wanted


def refuse_person(house: House, effect: Effect, name: str) -> str | None:
    """Return, as a word, why a person may not answer about an effect whatever policies say; None where they may (1, 2).

    Suspension is asked of the ledger, in `is_stopped`.
    """
    person = house.profile.people.get(name)
    if person is None or ROLE not in person.roles:
        return "role"
    actor = house.profile.actors.get(effect.actor)
    if name == effect.subject:
        return "subject"
    if actor is None or name == actor.answers_to:
        return "answers_to"
    # Who asked before the owner said whose account it is, asked as that account.
    return "caller" if effect.caller in {name, person.login} else None


def is_stopped(view: View, name: str) -> bool:
    """Say whether a person is frozen or revoked, and not thawed since (1)."""
    ruling = view.ruling(RulingKind.STOP, stop_name(StopKind.PERSON, name))
    return ruling is not None and ruling.value != Stop.OPEN


def is_revoked_for(view: View, effect: Effect, name: str) -> bool:
    """Say whether a person was revoked since an effect was prepared: no thaw lets a yes of theirs carry it (1).

    Admission would find it void (`issuer.flow.stops`); a permit that is void from the start is not given.
    """
    ruling = view.ruling(RulingKind.STOP, stop_name(StopKind.PERSON, name))
    return ruling is not None and effect.prepared_ms <= ruling.voids_until_ms


def is_key_good(house: House, view: View, name: str, fingerprint: str) -> bool:
    """Say whether a key is registered to a person, and not revoked (3); the one word about a key is that it is."""
    keys = registered_keys(house).get(name, ())
    return (
        any(key.fingerprint == fingerprint for key in keys)
        and view.ruling(RulingKind.KEY, fingerprint) is None
    )


def groups_of(house: House, name: str, wanted: Iterable[str]) -> frozenset[str]:
    """Return the groups that are asked and that a person is in (5)."""
    person = house.profile.people.get(name)
    return frozenset() if person is None else frozenset(person.groups) & frozenset(wanted)


def allowed_groups(
    house: House, effect: Effect, name: str, groups: Iterable[str], now: InstantMs
) -> tuple[frozenset[str], bool]:
    """Return for which groups the policies let a person answer, and whether one of them could not be evaluated (6)."""
    allowed, has_errors = set(), False
    for group in sorted(groups):
        try:
            facts = ApprovalFacts(
                person=name,
                effect_id=effect.effect_id,
                action_class=effect.action_class,
                subject=effect.subject,
                actor=effect.actor,
                approvers=group,
                now_ms=now,
            )
        except FactsRefused:
            has_errors = True
            continue
        decision = may_approve(house.bundle, house.directory, facts)
        has_errors = has_errors or bool(decision.errors)
        if decision.allowed:
            allowed.add(group)
    return frozenset(allowed), has_errors


def counted(
    house: House,
    effect: Effect,
    locked: Locked,
    statement: bytes,
    wanted: Mapping[str, int],
    *,
    given: Iterable[Approval],
) -> Counted:
    """Return whose yes of `given` counts now for `wanted`, each proven anew from its signature on."""
    known: dict[str, frozenset[str]] = {}
    allowed: dict[str, frozenset[str]] = {}
    has_errors = False
    for approval in given:
        name = approval.person
        if refuse_person(house, effect, name) is not None or is_stopped(locked.view, name):
            continue
        if is_revoked_for(locked.view, effect, name):
            continue
        if not is_key_good(house, locked.view, name, approval.key) or not _still_signed(
            house, statement, approval
        ):
            continue
        known[name] = groups_of(house, name, wanted)
        allowed[name], is_error = allowed_groups(house, effect, name, known[name], locked.now)
        has_errors = has_errors or is_error
    return Counted(known=known, allowed=allowed, has_errors=has_errors)


def _still_signed(house: House, statement: bytes, approval: Approval) -> bool:
    """Say whether a signature on record is one of that person's key over exactly this statement (4)."""
    keys = [key for key in registered_keys(house).get(approval.person, ()) if key.fingerprint == approval.key]
    try:
        return signer_of(statement, approval.signature, keys).fingerprint == approval.key
    except SignatureRefused:
        return False


def refuse_approval(
    house: House, effect: Effect, locked: Locked, statement: bytes | None, current: Mapping[str, int]
) -> tuple[Refusal | None, tuple[str, ...]]:
    """Return why the approval behind a permit does not carry an admission now, or None and whose yes counted (POL-05).

    `current` is what the decision of now wants; what was wanted when people were asked has to hold as well.
    """
    view = locked.view
    wait = view.approval_wait(effect.effect_id)
    if statement is None or wait is None or statement_digest(statement) != wait.statement_digest:
        return Refusal(code=RefusalCode.PREPARE_AGAIN, field="statement"), ()
    wanted = all_wanted(wait.approvers, current)
    found = counted(house, effect, locked, statement, wanted, given=view.approvals(effect.effect_id))
    return found.refusal(wanted), tuple(sorted(found.allowed))


def nobody_can_answer(house: House, effect: Effect, wanted: Mapping[str, int]) -> bool:
    """Say whether there are too few people who could ever say yes to an effect: a fault of the owner's setting up."""
    able = {
        name: groups_of(house, name, wanted)
        for name in registered_keys(house)
        if refuse_person(house, effect, name) is None
    }
    return not is_quorum(wanted, able)
