"""From an effect and what happened to it to the transition that its span records (AUD-01, AUD-05, AUD-07).

Only attributes of the closed vocabulary are used, and none that is secret: no payload, no salt, no seal (SEC-01).
"""

from collections.abc import Mapping

from issuer.house import Visit
from ledger.model import Amounts, Effect, Task, Tombstone
from ledger.refusals import Refusal
from ledger.states import EffectState
from ledger.transitions import AttributeValue, Transition, TransitionName

_STATE_NAMES: Mapping[EffectState, TransitionName] = {
    EffectState.PREPARED: TransitionName.EFFECT_PREPARED,
    EffectState.PERMITTED: TransitionName.EFFECT_PERMITTED,
    EffectState.AWAITING_APPROVAL: TransitionName.EFFECT_AWAITING_APPROVAL,
    EffectState.DENIED: TransitionName.EFFECT_DENIED,
    EffectState.DECLINED: TransitionName.EFFECT_DECLINED,
    EffectState.EXPIRED: TransitionName.EFFECT_EXPIRED,
    EffectState.WITHDRAWN: TransitionName.EFFECT_WITHDRAWN,
    EffectState.REVOKED: TransitionName.EFFECT_REVOKED,
    EffectState.ADMITTED: TransitionName.EFFECT_ADMITTED,
    EffectState.SUCCEEDED: TransitionName.EFFECT_SUCCEEDED,
    EffectState.FAILED: TransitionName.EFFECT_FAILED,
    EffectState.NO_EFFECT: TransitionName.EFFECT_NO_EFFECT,
    EffectState.UNKNOWN: TransitionName.EFFECT_UNKNOWN,
}


def amounts(per_unit: Amounts) -> tuple[str, ...]:
    """Return amounts as a span shows them: `EUR.cent=14950`, sorted."""
    return tuple(f"{unit}={amount}" for unit, amount in sorted(per_unit.items()))


def amounts_of_people(wanted: Mapping[str, int]) -> tuple[str, ...]:
    """Return whom an effect waits for as a span shows it: `finance=2`, sorted."""
    return tuple(f"{group}={count}" for group, count in sorted(wanted.items()))


def common(visit: Visit) -> dict[str, AttributeValue]:
    """Return what every span says: who called and, where it was signed, who signed what; revision and process."""
    signed: dict[str, AttributeValue] = {}
    if visit.signed is not None:
        signed = {"permit.signer": visit.signed.person, "permit.statement.digest": visit.signed.digest}
    return {
        **signed,
        "permit.mode": visit.house.mode,
        "permit.caller": visit.caller.name,
        "permit.revision": visit.house.revision,
        "permit.instance": visit.house.instance.name,
    }


def effect_attributes(visit: Visit, effect: Effect) -> dict[str, AttributeValue]:
    """Return what every span of an effect says about it."""
    named = {} if effect.invocation_id is None else {"permit.invocation.id": effect.invocation_id}
    return {
        **common(visit),
        **named,
        "permit.actor": effect.actor,
        "permit.subject": effect.subject,
        "permit.task.id": effect.task_id,
        "permit.root.id": effect.root_id,
        "permit.operation": effect.operation,
        "permit.class": effect.action_class,
        "permit.resource.type": effect.resource_type,
        "permit.resource.id": effect.resource_id,
        "permit.binding.digest": effect.binding_digest.hex(),
    }


def _about(visit: Visit, effect: Effect | Tombstone) -> dict[str, AttributeValue]:
    if isinstance(effect, Effect):
        return effect_attributes(visit, effect)
    return {
        **common(visit),
        "permit.actor": effect.actor,
        "permit.subject": effect.subject,
        "permit.task.id": effect.task_id,
        "permit.operation": effect.operation,
    }


def moved(
    visit: Visit,
    effect: Effect,
    target: EffectState,
    **attributes: AttributeValue,
) -> Transition:
    """Return the transition of `effect` from its state to `target`; keyword `policy_ids` is `permit.policy.ids`."""
    first = target is EffectState.PREPARED
    return Transition(
        name=_STATE_NAMES[target],
        story=effect.effect_id,
        effect_id=effect.effect_id,
        state_from=None if first else effect.state,
        state_to=target,
        attributes={**effect_attributes(visit, effect), **_dotted(attributes)},
    )


def beside(visit: Visit, name: TransitionName, effect: Effect, **attributes: AttributeValue) -> Transition:
    """Return a transition of an effect that moves no state."""
    return Transition(
        name=name,
        story=effect.effect_id,
        effect_id=effect.effect_id,
        attributes={**effect_attributes(visit, effect), **_dotted(attributes)},
    )


def unmoved(visit: Visit, effect: Effect, **attributes: AttributeValue) -> Transition:
    """Return the transition of evidence that moves no state: of an attempt to reconcile, or of a first-hand word."""
    name = TransitionName.EFFECT_INSPECTED if "attempt" in attributes else TransitionName.EFFECT_REPORTED
    return beside(visit, name, effect, **attributes)


def content_shown(
    visit: Visit, effect: Effect | Tombstone, fields: tuple[str, ...], *, reason: str
) -> Transition:
    """Return the transition of a look at protected content: the names of the fields that are shown, never a value."""
    return Transition(
        name=TransitionName.CONTENT_SHOWN,
        story=effect.effect_id,
        effect_id=effect.effect_id,
        attributes={**_about(visit, effect), "permit.fields": fields, "permit.reason": reason},
    )


def observed(visit: Visit, effect: Effect | None, *, count: int, **attributes: AttributeValue) -> Transition:
    """Return the transition of a look at `count` effects of others; it is part of one's story where it is one."""
    about = common(visit) if effect is None else effect_attributes(visit, effect)
    return Transition(
        name=TransitionName.OBSERVED,
        story=visit.house.ledger.ledger_id if effect is None else effect.effect_id,
        effect_id=None if effect is None else effect.effect_id,
        attributes={
            **about,
            "permit.command": visit.command,
            "permit.count": count,
            **_dotted(attributes),
        },
    )


def refused(
    visit: Visit,
    refusal: Refusal,
    *,
    effect: Effect | Tombstone | None = None,
    **attributes: AttributeValue,
) -> Transition:
    """Return the transition of a no; it moves nothing, and belongs to the effect where there is one, or was."""
    about = {**common(visit), **visit.about} if effect is None else _about(visit, effect)
    why: dict[str, AttributeValue] = {"permit.command": visit.command, "permit.refusal": str(refusal.code)}
    if refusal.field is not None:
        why["permit.refusal.field"] = refusal.field
    if refusal.level is not None:
        why["permit.refusal.level"] = refusal.level
    return Transition(
        name=TransitionName.REFUSED,
        story=visit.house.ledger.ledger_id if effect is None else effect.effect_id,
        effect_id=None if effect is None else effect.effect_id,
        attributes={**about, **why, **_dotted(attributes)},
    )


def of_task(
    visit: Visit,
    name: TransitionName,
    task: Task,
    **attributes: AttributeValue,
) -> Transition:
    """Return the transition of a task."""
    return Transition(
        name=name,
        story=task.task_id,
        attributes={
            **common(visit),
            "permit.subject": task.subject,
            "permit.task.id": task.task_id,
            "permit.task.name": task.name,
            "permit.root.id": task.root_id,
            **_dotted(attributes),
        },
    )


def _dotted(attributes: Mapping[str, AttributeValue]) -> dict[str, AttributeValue]:
    """Turn `policy_ids` into `permit.policy.ids`; a name that has an underscore of its own is spelled with two."""
    return {
        "permit." + name.replace("__", "\x00").replace("_", ".").replace("\x00", "_"): value
        for name, value in attributes.items()
    }
