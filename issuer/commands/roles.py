"""Who may give which command: one table, asked at the edge before anything of a command runs (SEC-02, POL-01).

Rules, in order:
  1. a credential that was presented is the one on record   2. a signature that was presented is good, in time, not used
  before, and by a key that is not revoked; asked here in a read, and by the act again under the lock
  3. a host or an actor asks for permits, uses them and looks at its own, and nothing else   4. in strict, a
  person's act is signed by that person   5. the policies of the owner allow it: always asked in strict; in ordinary
  where the caller is a person of the profile and some policy names the action, so that bundles of earlier releases
  keep working.
A command that is not in the table is refused as our fault. An act on an effect is asked about once that effect is
found (`find_to`): somebody else's is found only where a policy lets this person act on it, and reads like a missing one
otherwise (EFF-08).
Next: `issuer.commands.edge` puts each no on record.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from issuer.caller import CallerKind, refuse_agent, refuse_caller
from issuer.flow.decide import error_words
from issuer.flow.prepare import refuse_unserved
from issuer.flow.reference import effect_reference, find_effect
from issuer.flow.refusing import RefusedError
from issuer.flow.signed_act import refuse_used
from issuer.flow.stops import directory_now
from issuer.house import Visit
from ledger.errors import Broken
from ledger.model import Effect
from ledger.refusals import RefusalCode
from ledger.transitions import AttributeValue
from policies import ActDecision, ActFacts, EffectFact, may_act

OPEN_TASK, OBSERVE, RECONCILE = "openTask", "observe", "reconcile"
ACKNOWLEDGE, REVOKE, ACTIVATE, APPROVE = "acknowledge", "revoke", "activate", "approve"


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """What a command demands of whoever gives it.

    Attributes:
        functions: the functions of `issuer.commands` that carry it out.
        action: the Cedar action that a person is asked about; None where nobody is.
        on_effect: whether the question is about one effect, and so asked once that is found.
        agents: whether a host or an actor may give it, about what is its own.
        signed: whether it is an owner's, operator's or approver's act, which strict mode wants signed.
    """

    functions: tuple[str, ...]
    action: str | None = None
    on_effect: bool = False
    agents: bool = False
    signed: bool = False

    @property
    def takes_signature(self) -> bool:
        """Whether a statement of it names its arguments and is used up by it: an act, and nothing else (APP-01)."""
        return self.signed or self.action == REVOKE


def _agents(*functions: str) -> Demand:
    return Demand(functions=functions, agents=True)


def _act(action: str, *functions: str, on_effect: bool = False) -> Demand:
    return Demand(functions=functions, action=action, on_effect=on_effect, signed=True)


def _look(*functions: str, on_effect: bool = False) -> Demand:
    return Demand(functions=functions, action=OBSERVE, on_effect=on_effect)


COMMANDS: Final[Mapping[str, Demand]] = MappingProxyType(
    {
        "request": _agents("request", "request_held"),
        "commit": _agents("commit"),
        "dispatch": _agents("dispatch_child"),
        "admit": _agents("admit_host"),
        "report": _agents("report"),
        "withdraw": _agents("withdraw"),
        "wait": _agents("wait"),
        "show": _agents("show"),
        "list": _agents("list_effects"),
        "audit-timeline": _agents("timeline_of"),
        "invocation-open": _agents("invocation_open"),
        "invocation-end": _agents("invocation_end"),
        "invocation-cancel": _agents("invocation_cancel"),
        "invocation-show": _agents("invocation_show"),
        "invocation-list": _agents("invocation_list"),
        "obligation-done": _agents("obligation_done"),
        "show-content": _look("show_content", on_effect=True),
        "task-show": _look("task_show"),
        "task-list": _look("task_list"),
        # Who waits for whom is shown to those whom it waits for, and a statement is on record each time (APP-02).
        "approvals": Demand(functions=("approvals",)),
        "statement": Demand(functions=("statement",)),
        "revisions": _look("revisions"),
        "audit-changes": _look("audit_changes"),
        "audit-query": _look("audit_query"),
        "audit-issued": _look("audit_issued"),
        "audit-story": _look("audit_story"),
        "audit-unknowns": _look("audit_unknowns"),
        "audit-unused": _look("audit_unused"),
        "audit-denied-then-done": _look("audit_denied_then_done"),
        "audit-approvals": _look("audit_approvals"),
        "audit-access": _look("audit_access"),
        "audit-report": _look("audit_report"),
        "audit-export": _look("audit_export"),
        "audit-snapshot": _look("audit_snapshot"),
        "audit-checkpoint": _look("audit_checkpoint"),
        "audit-key": _look("audit_key"),
        "audit-prove": _look("audit_prove", on_effect=True),
        "audit-hash": _look("audit_hash"),
        "keys-list": _look("keys_list"),
        "ledger-check": _look("ledger_check"),
        "ledger-stats": _look("ledger_stats"),
        "task-open": _act(OPEN_TASK, "task_open"),
        "task-grant": _act(OPEN_TASK, "task_grant"),
        "task-lower": _act(OPEN_TASK, "task_lower"),
        "task-accept-overrun": _act(OPEN_TASK, "task_accept_overrun"),
        "task-close": _act(OPEN_TASK, "task_close"),
        "task-thaw": _act(OPEN_TASK, "task_thaw"),
        "reconcile": _act(RECONCILE, "reconcile", on_effect=True),
        "acknowledge": _act(ACKNOWLEDGE, "acknowledge", on_effect=True),
        # To stop something is urgent, and takes nothing but the right to; to let it go on again is signed.
        "task-freeze": Demand(functions=("task_freeze",), action=REVOKE),
        "freeze": Demand(functions=("freeze",), action=REVOKE),
        "suspend": Demand(functions=("suspend",), action=REVOKE),
        "revoke": _act(REVOKE, "revoke"),
        "thaw": _act(ACTIVATE, "thaw"),
        "resume": _act(ACTIVATE, "resume"),
        "activate": _act(ACTIVATE, "activate"),
        "host-token": _act(ACTIVATE, "host_token"),
        "actor-token": _act(ACTIVATE, "actor_token"),
        "keys-rotate": _act(ACTIVATE, "keys_rotate"),
        "keys-retire": _act(ACTIVATE, "keys_retire"),
        "keys-revoke": _act(ACTIVATE, "keys_revoke"),
        "clock-accept": _act(ACTIVATE, "clock_accept"),
        "sink-list": _look("sink_list"),
        "sink-replace": _act(ACTIVATE, "sink_replace"),
        "sink-quarantine": _act(ACTIVATE, "sink_quarantine"),
        "audit-archive": _act(ACTIVATE, "audit_archive"),
        "ledger-collect": _act(ACTIVATE, "ledger_collect"),
        "ledger-backup": _act(ACTIVATE, "ledger_backup"),
        "ledger-restore": _act(ACTIVATE, "ledger_restore"),
        # Who may approve is asked per effect, group and person, where the signature is judged (APP-01, APP-03).
        "approve": Demand(functions=("approve",)),
        "decline": Demand(functions=("decline",)),
    },
)
"""Every command of the product, by the word that its refusals name."""


def demand_role(visit: Visit) -> None:
    """Let a command begin, or refuse it: rules 1 to 5, but for the question about an effect.

    Raises:
        RefusedError: `unauthenticated`, `forbidden`, `signature_needed`, `signature_refused` or `policy_error`.
        Broken: the table does not have the command.
        Fault: the ledger cannot be read, so nobody's credential is proven.
    """
    demand = COMMANDS.get(visit.command)
    if demand is None:
        raise Broken(f"no role is declared for the command {visit.command}")
    if visit.caller.credential is not None:
        no = visit.house.ledger.read(lambda view: refuse_caller(view, visit.caller))  # 1
        if no is not None:
            raise RefusedError(no.code)
    _demand_good_signature(visit, demand)  # 2
    no = None if demand.agents else refuse_agent(visit.caller)  # 3
    if no is not None:
        raise RefusedError(no.code, field=no.field)
    if demand.signed and visit.house.mode == "strict" and visit.signed is None:  # 4
        refuse_unserved(visit.house.profile, None)
        raise RefusedError(RefusalCode.SIGNATURE_NEEDED)
    if demand.action is not None and not demand.on_effect and is_asked(visit, demand.action):  # 5
        _demand_allowed(demand.action, decided(visit, demand.action, None))


def _demand_good_signature(visit: Visit, demand: Demand) -> None:
    """Refuse a signature that came along and is none, is for no act, or cannot be used any more."""
    signed = visit.signed
    if visit.trouble is not None:
        raise RefusedError(visit.trouble.code, field=visit.trouble.field)
    if signed is None:
        return
    if not demand.takes_signature:
        # A statement of it would name no arguments and be good any number of times, so it makes nobody its signer.
        raise RefusedError(RefusalCode.SIGNATURE_REFUSED, field="command")
    used = visit.house.ledger.read(lambda view: refuse_used(view, signed, visit.house.now()))
    if used is not None:
        raise RefusedError(used.code, field=used.field)


def is_asked(visit: Visit, action: str) -> bool:
    """Say whether the policies are asked about this action of this caller."""
    if visit.house.mode == "strict":
        return True
    return visit.caller.kind is CallerKind.PERSON and visit.house.role_bundle.names_action(action)


def decided(visit: Visit, action: str, effect: Effect | None) -> ActDecision:
    """Ask the policies about an act of this caller; who is no person of the profile is nobody's friend (POL-04)."""
    fact = None
    if effect is not None:
        fact = EffectFact(
            effect_id=effect.effect_id,
            action_class=effect.action_class,
            operation=effect.operation,
            subject=effect.subject,
            actor=effect.actor,
            state=str(effect.state),
            own=effect.caller == visit.caller.name,
        )
    facts = ActFacts(
        person=visit.caller.name,
        action=action,
        command=visit.command,
        now_ms=visit.house.now(),
        effect=fact,
    )
    directory = visit.house.ledger.read(lambda view: directory_now(visit.house, view))
    return may_act(visit.house.role_bundle, directory, facts)


def act_attributes(decision: ActDecision) -> Mapping[str, AttributeValue]:
    """Return what a span says about a decision on an act (POL-06)."""
    said: dict[str, AttributeValue] = {
        "policy_ids": decision.policy_ids,
        "bundle_digest": decision.bundle_digest,
        "engine": decision.engine,
    }
    if decision.errors:
        said["policy_errors"] = error_words(decision)
    return said


def _demand_allowed(action: str, decision: ActDecision) -> None:
    if decision.allowed:
        return
    code = RefusalCode.POLICY_ERROR if decision.errors else RefusalCode.FORBIDDEN
    raise RefusedError(code, field=action, extra=act_attributes(decision))


def find_to(visit: Visit, text: str, action: str) -> Effect | None:
    """Return the effect that `text` names, if this caller may act on it.

    An own one is found, and the act refused where the policies do not allow it. Another's is found only where they
    allow it; every other case is one: None, which reads like a missing effect.

    Raises:
        RefusedError: `forbidden` or `policy_error`, about an own effect.
    """
    effect = find_effect(visit, text)
    asked = is_asked(visit, action)
    if effect is not None:
        if asked:
            _demand_allowed(action, decided(visit, action, effect))
        return effect
    effect_id = effect_reference(text)
    other = None if effect_id is None else visit.house.ledger.read(lambda view: view.effect(effect_id))
    if other is None or not asked or visit.caller.is_agent:
        return None
    return other if decided(visit, action, other).allowed else None
