"""Rulings, waits and approvals in a ledger: the steps that the core commits, in their smallest form.

Their spans say what the vocabulary asks of them, so that the ledger of a real issuer takes them as well.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from ledger.authority import (
    ACTIVE_REVISION,
    SINK_GONE,
    SINKS_CHANGED,
    Approval,
    ApprovalWait,
    Ruling,
    RulingKind,
    Stop,
)
from ledger.changes import (
    ApprovalAsked,
    ApprovalGiven,
    ChallengesDropped,
    Change,
    EffectMoved,
    RulingMade,
    Step,
)
from ledger.model import CounterTake, Effect, InstantMs, Permit
from ledger.port import Ledger, Verdict
from ledger.states import EffectState
from ledger.transitions import AttributeValue, Transition, TransitionName
from tests.support.ledgers import START, commit_steps, moving, permitting

KEY: Final = "SHA256:" + "k" * 42 + "A"
SIGNED: Final = "-----BEGIN SSH SIGNATURE-----\nAAAA\n-----END SSH SIGNATURE-----\n"
STATEMENT: Final = hashlib.sha256(b"statement").digest()
OPERATION: Final = "operation:pay"

_STOPPED: Final = {
    Stop.FROZEN: TransitionName.STOP_FROZEN,
    Stop.OPEN: TransitionName.STOP_THAWED,
    Stop.REVOKED: TransitionName.STOP_REVOKED,
}
_MODE: Final[Mapping[str, AttributeValue]] = {"permit.mode": "strict"}


def ruling(kind: RulingKind, name: str, value: str, **changed: Any) -> Ruling:
    """Return a ruling made at the start."""
    return Ruling(**{"kind": kind, "name": name, "value": value, "since_ms": START, **changed})


def said_of(made: Ruling) -> Transition:
    """Return the transition that a ruling is made with, and what its span says of it."""
    name, told = TransitionName.PROBE, dict[str, AttributeValue]()
    match made.kind:
        case RulingKind.REVISION:
            name, told = TransitionName.REVISION_ACTIVATED, {"permit.revision.activated": made.value}
        case RulingKind.TOKEN:
            name, told = TransitionName.CREDENTIAL_ISSUED, {"permit.credential": made.name}
        case RulingKind.STOP:
            name, told = _STOPPED[Stop(made.value)], {"permit.stop": made.name}
        case RulingKind.KEY:
            name, told = TransitionName.STOP_REVOKED, {"permit.stop": f"key:{made.name}"}
        case RulingKind.SINK:
            name, told = TransitionName.SINK_REPLACED, _placed(made.name)
        case RulingKind.QUARANTINE:
            name, told = TransitionName.SINK_QUARANTINED, _kept_back(made)
        case RulingKind.CHALLENGE:
            pass
    return Transition(name=name, story="led", attributes={**_MODE, **told} if told else {})


def _placed(sink: str) -> dict[str, AttributeValue]:
    return {
        "permit.sink.name": sink,
        "permit.sink.kind": "jsonl",
        "permit.sink.location_digest": "4d" * 32,
        "permit.sink.upto": 1,
    }


def _kept_back(made: Ruling) -> dict[str, AttributeValue]:
    sink, _colon, first = made.name.rpartition(":")
    return {
        "permit.sink.name": sink,
        "permit.sink.from": int(first),
        "permit.sink.upto": int(made.value),
        "permit.reason": "rejected",
    }


def ruling_step(made: Ruling) -> Step:
    """Return the step that makes a ruling; one about a sink tells of itself by a second one."""
    changes: tuple[Change, ...] = (RulingMade(ruling=made),)
    if made.kind in {RulingKind.SINK, RulingKind.QUARANTINE}:
        told = ruling(RulingKind.SINK, SINKS_CHANGED, made.name, since_ms=made.since_ms)
        changes = (*changes, RulingMade(ruling=told))
    return Step(transition=said_of(made), changes=changes)


def rule(ledger: Ledger, kind: RulingKind, name: str, value: str, **changed: Any) -> Ruling:
    """Make a ruling and return it."""
    made = ruling(kind, name, value, **changed)
    commit_steps(ledger, ruling_step(made))
    return made


def one_of_each(ledger: Ledger) -> Mapping[RulingKind, Ruling]:
    """Make a ruling of each kind, the stop and the revision after an earlier word about the same name."""
    rule(ledger, RulingKind.REVISION, ACTIVE_REVISION, "1a" * 32)
    rule(ledger, RulingKind.STOP, OPERATION, Stop.FROZEN)
    made = (
        rule(ledger, RulingKind.REVISION, ACTIVE_REVISION, "2b" * 32),
        rule(ledger, RulingKind.TOKEN, "host:ap-service", "3c" * 32),
        rule(ledger, RulingKind.STOP, OPERATION, Stop.REVOKED, voids_until_ms=START),
        rule(ledger, RulingKind.KEY, KEY, Stop.REVOKED),
        rule(ledger, RulingKind.CHALLENGE, "chl-1", str(START)),
        rule(ledger, RulingKind.SINK, "former", SINK_GONE),
        rule(ledger, RulingKind.QUARANTINE, "former:1", "1"),
    )
    return {one.kind: one for one in made}


def dropping(*names: str) -> Step:
    """Return the step that drops used challenges."""
    dropped: Change = ChallengesDropped(names=names)
    return Step(transition=Transition(name=TransitionName.PROBE, story="led"), changes=(dropped,))


def _about(effect: Effect) -> dict[str, AttributeValue]:
    return {
        **_MODE,
        "permit.task.id": effect.task_id,
        "permit.actor": effect.actor,
        "permit.subject": effect.subject,
        "permit.operation": effect.operation,
    }


def new_wait(effect: Effect, **changed: Any) -> ApprovalWait:
    """Return a wait for one person of one group."""
    made: dict[str, Any] = {
        "effect_id": effect.effect_id,
        "approvers": {"finance": 1},
        "statement_digest": STATEMENT,
        "asked_ms": START,
    }
    return ApprovalWait(**{**made, **changed})


def asking(effect: Effect, **changed: Any) -> Step:
    """Return the step by which an effect begins to wait for people."""
    wait = new_wait(effect, **changed)
    told: dict[str, AttributeValue] = {
        **_about(effect),
        "permit.statement.digest": wait.statement_digest.hex(),
        "permit.approvers": tuple(f"{group}={count}" for group, count in sorted(wait.approvers.items())),
    }
    transition = replace(moving(effect, EffectState.AWAITING_APPROVAL), attributes=told)
    moved = EffectMoved(effect_id=effect.effect_id, origin=effect.state, target=EffectState.AWAITING_APPROVAL)
    return Step(transition=transition, changes=(moved, ApprovalAsked(wait=wait)))


def new_approval(effect: Effect, person: str = "u-bo", **changed: Any) -> Approval:
    """Return one person's yes."""
    made: dict[str, Any] = {
        "effect_id": effect.effect_id,
        "person": person,
        "key": KEY,
        "signature": SIGNED,
        "at_ms": START,
    }
    return Approval(**{**made, **changed})


def approving(effect: Effect, person: str = "u-bo", **changed: Any) -> Step:
    """Return the step by which one person says yes."""
    approval = new_approval(effect, person, **changed)
    told: dict[str, AttributeValue] = {
        **_about(effect),
        "permit.signer": approval.person,
        "permit.statement.digest": STATEMENT.hex(),
        "permit.key.fingerprint": approval.key,
    }
    transition = Transition(
        name=TransitionName.EFFECT_APPROVED,
        story=effect.effect_id,
        effect_id=effect.effect_id,
        attributes=told,
    )
    return Step(transition=transition, changes=(ApprovalGiven(approval=approval),))


def declining(effect: Effect, person: str = "u-bo") -> Step:
    """Return the step by which a person says no to a waiting effect."""
    told: dict[str, AttributeValue] = {**_about(effect), "permit.signer": person, "permit.reason": "declined"}
    moved = EffectMoved(effect_id=effect.effect_id, origin=effect.state, target=EffectState.DECLINED)
    transition = replace(moving(effect, EffectState.DECLINED), attributes=told)
    return Step(transition=transition, changes=(moved,))


def permitting_approved(effect: Effect, permit: Permit, takes: tuple[CounterTake, ...]) -> Step:
    """Return the step that issues a permit for an effect that was approved."""
    told: dict[str, AttributeValue] = {
        **_about(effect),
        "permit.tier": str(permit.tier),
        "permit.expires_ms": permit.expires_ms,
    }
    step = permitting(effect, permit, takes)
    return replace(step, transition=replace(step.transition, attributes=told))


def approve(ledger: Ledger, effect: Effect, person: str = "u-bo") -> None:
    """Let one person say yes now, whenever that is."""
    ledger.transact(
        lambda _view, now: Verdict(value=None, steps=(approving(effect, person, at_ms=InstantMs(now)),))
    )
