"""What a restored ledger does again to its stops and credentials: no restore gives back what was taken.

Rules: LED-08, ADM-05. A freeze or revocation that a sink tells of is made again, a thaw is not. A credential that was
issued or revoked since is void: which secret counted last is in no span. Where no sink proves that nothing else was
stopped, everything is frozen until an owner has looked, and every credential is void too. A changed revision is
`issuer.restore.revision_steps`'.
Next: `issuer.restore.steps`.
"""

from collections.abc import Iterator

from issuer.restore.plan import REASON, Outcome, Plan, common
from ledger.authority import NOTHING_VOID, Ruling, RulingKind, Stop, StopKind, stop_name
from ledger.changes import RulingMade, Step
from ledger.model import EffectId, InstantMs
from ledger.port import View
from ledger.states import PENDING, UNRESOLVED
from ledger.transitions import Transition, TransitionName

_ALL = stop_name(StopKind.ALL, "")
_KEY = f"{RulingKind.KEY}:"


def stop_steps(plan: Plan, view: View, now: InstantMs, outcome: Outcome) -> tuple[Step, ...]:
    """Return the steps; `outcome` is told what is stopped and whose credential is void.

    What was prepared is revoked by the restore itself, so a revocation that is made again voids until `now`.
    """
    told = dict(plan.retold.stops)
    if not plan.is_complete:
        told.setdefault(_ALL, Stop.FROZEN)
    steps = [*_stopped(plan, view, now, told, outcome), *_void_credentials(plan, view, now, outcome)]
    return (*steps, *_late(plan, view))


def _stopped(
    plan: Plan, view: View, now: InstantMs, told: dict[str, Stop], outcome: Outcome
) -> Iterator[Step]:
    for name, value in sorted(told.items()):
        if name.startswith(_KEY):
            ruling = _key_ruling(view, name.removeprefix(_KEY), now)
        elif name.partition(":")[0] in set(StopKind):
            ruling = _stop_ruling(view, name, value, now)
        else:
            continue  # the vocabulary has a form for it, and no release made one
        if ruling is None:
            continue
        outcome.stopped.append(name)
        is_revoked = ruling.value == Stop.REVOKED
        transition = TransitionName.STOP_REVOKED if is_revoked else TransitionName.STOP_FROZEN
        yield _step(plan, transition, ruling, "stop", name)


def _stop_ruling(view: View, name: str, value: Stop, now: InstantMs) -> Ruling | None:
    """Return the ruling to make, None where the backup's says as much: revoked is more than frozen."""
    before = view.ruling(RulingKind.STOP, name)
    kept = NOTHING_VOID if before is None else before.voids_until_ms
    if before is not None and before.value == Stop.REVOKED and value is not Stop.REVOKED:
        return None
    if before is not None and before.value == value == Stop.FROZEN:
        return None
    until = now if value is Stop.REVOKED else kept
    return Ruling(
        kind=RulingKind.STOP, name=name, value=str(value), since_ms=now, voids_until_ms=max(until, kept)
    )


def _key_ruling(view: View, key: str, now: InstantMs) -> Ruling | None:
    if view.ruling(RulingKind.KEY, key) is not None:
        return None
    return Ruling(kind=RulingKind.KEY, name=key, value=str(Stop.REVOKED), since_ms=now)


def _void_credentials(plan: Plan, view: View, now: InstantMs, outcome: Outcome) -> Iterator[Step]:
    for token in view.rulings(RulingKind.TOKEN):
        is_doubtful = not plan.is_complete or token.name in plan.retold.credentials
        if token.value == Stop.REVOKED or not is_doubtful:
            continue
        outcome.credentials.append(token.name)
        ruling = Ruling(kind=RulingKind.TOKEN, name=token.name, value=str(Stop.REVOKED), since_ms=now)
        yield _step(plan, TransitionName.CREDENTIAL_REVOKED, ruling, "credential", token.name)


def _step(plan: Plan, name: TransitionName, ruling: Ruling, what: str, said: str) -> Step:
    transition = Transition(
        name=name,
        story=plan.base.ledger_id,
        attributes={**common(plan), f"permit.{what}": said, "permit.reason": REASON},
    )
    return Step(transition=transition, changes=(RulingMade(ruling=ruling),))


def _late(plan: Plan, view: View) -> Iterator[Step]:
    """Say again which effects were revoked too late: none of them is ever sent again (REC-03)."""
    for effect_id in sorted(plan.retold.revoked_late):
        effect = view.effect(EffectId(effect_id))
        if effect is None or effect.state not in PENDING | UNRESOLVED or view.was_revoked_late(effect_id):
            continue
        yield Step(
            transition=Transition(
                name=TransitionName.EFFECT_REVOKED_LATE,
                story=effect_id,
                effect_id=effect_id,
                attributes={
                    **common(plan),
                    "permit.actor": effect.actor,
                    "permit.subject": effect.subject,
                    "permit.task.id": effect.task_id,
                    "permit.operation": effect.operation,
                    "permit.reason": REASON,
                },
            )
        )
