"""What a restored ledger does again to its effects: nothing that may have been sent is free, and no permit lives on.

Rules: LED-08, BUD-02 and BUD-06 (money and slots are held at every level), BUD-04 (unknown holds its maximum). What a
sink tells of an outcome is kept as a hint for whoever looks, and releases nothing.
Next: `issuer.restore.steps`.
"""

from typing import Final

from issuer.clock import local_time
from issuer.flow.decide import class_takes
from issuer.restore.plan import REASON, Outcome, Plan, common
from issuer.restore.retold import EffectStory
from issuer.restore.task_steps import TaskSteps
from ledger.budgets import reserved_lines
from ledger.canonical import canonical_bytes
from ledger.changes import AdmissionReplayed, Change, EffectMoved, EffectPrepared, EvidenceAdded, Step
from ledger.model import CounterTake, Effect, EvidenceClass, InstantMs, TaskId, Tier
from ledger.port import View
from ledger.rules import evidence_of
from ledger.scope import slot_takes
from ledger.sqlite.schema_one import WINDOW_MS
from ledger.states import PENDING, EffectState
from ledger.transitions import AttributeValue, Transition, TransitionName

REPLAYED_VERSION: Final = 1
"""Version of the document that stands where the binding of a replayed effect was."""


class EffectSteps:
    """The steps as they come."""

    def __init__(self, plan: Plan, view: View, now: InstantMs, tasks: TaskSteps) -> None:
        """Read from `view`; `tasks` knows those that were opened since as well."""
        self._plan = plan
        self._view = view
        self._now = now
        self._tasks = tasks
        self.steps: list[Step] = []
        self.outcome = Outcome()

    def _step(self, transition: Transition, *changes: Change) -> None:
        self.steps.append(Step(transition=transition, changes=changes))

    def replay_admissions(self) -> None:
        """Hold again what was admitted after the backup; what the backup has as admitted stands already."""
        for story in self._plan.retold.admitted():
            if self._view.tombstone(story.effect_id) is not None:
                continue
            held = self._view.effect(story.effect_id)
            if held is None:
                self._replay_unheard(story)
            elif held.state in PENDING:
                self._replay_held(story, held)

    def _replay_held(self, story: EffectStory, effect: Effect) -> None:
        """Replay an admission of an effect that the backup holds: its row says what it is, and only that counts."""
        if story.digest("binding.digest") != effect.binding_digest:
            raise ValueError("an effect is told of under another binding")
        permit = self._view.permit(effect.effect_id)
        takes = () if permit is not None else self._takes(story, effect)
        moved = EffectMoved(effect_id=effect.effect_id, origin=effect.state, target=EffectState.UNKNOWN)
        permit_id = story.permit_id() if permit is None else permit.permit_id
        replay = AdmissionReplayed(
            effect_id=effect.effect_id,
            permit_id=permit_id,
            task_id=effect.task_id,
            cost=effect.cost,
            takes=takes,
        )
        self._replayed(story, effect, permit_id, replay, moved)

    def _replay_unheard(self, story: EffectStory) -> None:
        """Replay an admission of an effect that the backup never heard of, made again from its spans."""
        effect = self._rebuilt(story)
        replay = AdmissionReplayed(
            effect_id=effect.effect_id,
            permit_id=story.permit_id(),
            task_id=effect.task_id,
            cost=effect.cost,
            takes=self._takes(story, effect),
        )
        self._replayed(story, effect, story.permit_id(), EffectPrepared(effect=effect), replay)

    def _replayed(self, story: EffectStory, effect: Effect, permit_id: str, *changes: Change) -> None:
        path = self._tasks.path(effect.task_id)
        transition = Transition(
            name=TransitionName.EFFECT_REPLAYED,
            story=effect.effect_id,
            effect_id=effect.effect_id,
            state_from=None if effect.replayed else effect.state,
            state_to=EffectState.UNKNOWN,
            attributes={
                **self._about(effect),
                "permit.caller": effect.caller,
                "permit.cost": tuple(f"{unit}={amount}" for unit, amount in sorted(effect.cost.items())),
                "permit.reservation": reserved_lines(path, effect.cost),
                "permit.permit.id": permit_id,
                "permit.reason": REASON,
                "permit.reference": _reference(story),
            },
        )
        self._step(transition, *changes, self._evidence(effect, proves=EffectState.UNKNOWN, story=story))
        self.outcome.replayed.append(effect.effect_id)

    def _rebuilt(self, story: EffectStory) -> Effect:
        task_id = TaskId(story.text("task.id"))
        path = self._tasks.path(task_id)
        digest = story.digest("binding.digest")
        if digest is None:
            raise ValueError("an effect is told of without its binding")
        document = {
            "v": REPLAYED_VERSION,
            "replayed": {"effect": story.effect_id, "digest": digest.hex(), "admitted": story.admitted_at},
        }
        prepared_ms = story.prepared_ms or self._now
        expires_ms = story.whole("expires_ms", prepared_ms)
        return Effect(
            effect_id=story.effect_id,
            state=EffectState.UNKNOWN,
            caller=story.text("caller"),
            task_id=task_id,
            root_id=path[0].task.root_id,
            subject=story.text("subject"),
            actor=story.text("actor"),
            operation=story.text("operation"),
            action_class=story.text("class"),
            resource_type=story.text("resource.type"),
            resource_id=story.text("resource.id"),
            request_key=story.effect_id,
            request=b"",
            binding=canonical_bytes(document),
            binding_digest=digest,
            # Without keys of repetition it repeats nothing: two that tell none are not taken for one.
            content_key=story.digest("content.key") or digest,
            resource_key=story.digest("resource.key") or digest,
            cost=story.cost(),
            protected=False,
            prepared_ms=prepared_ms,
            expires_ms=InstantMs(expires_ms),
            # Its spans do not tell how long the service keeps its key, so the longest counts (PER-04).
            window_ends_ms=InstantMs(expires_ms + WINDOW_MS),
            replayed=True,
        )

    def _takes(self, story: EffectStory, effect: Effect) -> tuple[CounterTake, ...]:
        """Return what issuing took: slots of the tasks, and where no person approved also bounds of the class."""
        path = self._tasks.path(effect.task_id)
        takes = slot_takes(path, effect)
        profile = self._plan.profile
        bounds = None if profile is None else profile.classes.get(effect.action_class)
        if profile is None or bounds is None or story.attributes.get("permit.tier") != Tier.ISSUE:
            return takes
        issued = local_time(story.permitted_ms or self._now, profile.timezone)
        return (*class_takes(bounds, effect, path, issued.day), *takes)

    def end_open_admissions(self) -> None:
        """Make what the backup holds as admitted `unknown`; keep what a sink says of outcomes as a hint for people."""
        for effect in self._view.effects(states=(EffectState.ADMITTED,)):
            story = self._plan.retold.effects.get(effect.effect_id)
            moved = EffectMoved(
                effect_id=effect.effect_id, origin=EffectState.ADMITTED, target=EffectState.UNKNOWN
            )
            transition = self._moved(effect, TransitionName.EFFECT_UNKNOWN, EffectState.UNKNOWN, story)
            self._step(transition, self._evidence(effect, proves=EffectState.UNKNOWN, story=story), moved)
            self.outcome.unknown.append(effect.effect_id)
        for effect in self._view.effects(states=(EffectState.UNKNOWN,)):
            story = self._plan.retold.effects.get(effect.effect_id)
            if story is None or not story.ended:
                continue
            attributes: dict[str, AttributeValue] = {
                **self._about(effect),
                "permit.evidence.class": str(EvidenceClass.NONE),
                "permit.reason": REASON,
                "permit.reference": _reference(story),
            }
            reported = Transition(
                name=TransitionName.EFFECT_REPORTED,
                story=effect.effect_id,
                effect_id=effect.effect_id,
                attributes=attributes,
            )
            self._step(reported, self._evidence(effect, proves=EffectState.UNKNOWN, story=story))

    def revoke_pending(self) -> None:
        """End whatever may still be admitted: earlier permits are void (LED-08)."""
        replayed = set(self.outcome.replayed)
        for effect in self._view.effects(states=tuple(sorted(PENDING))):
            if effect.effect_id in replayed:
                continue
            moved = EffectMoved(effect_id=effect.effect_id, origin=effect.state, target=EffectState.REVOKED)
            transition = self._moved(effect, TransitionName.EFFECT_REVOKED, EffectState.REVOKED, None)
            self._step(transition, moved)
            self.outcome.revoked.append(effect.effect_id)

    def _moved(
        self, effect: Effect, name: TransitionName, target: EffectState, story: EffectStory | None
    ) -> Transition:
        attributes = {**self._about(effect), "permit.reason": REASON}
        if story is not None and _reference(story):
            attributes["permit.reference"] = _reference(story)
        return Transition(
            name=name,
            story=effect.effect_id,
            effect_id=effect.effect_id,
            state_from=effect.state,
            state_to=target,
            attributes=attributes,
        )

    def _about(self, effect: Effect) -> dict[str, AttributeValue]:
        return {
            **common(self._plan),
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

    def _evidence(self, effect: Effect, *, proves: EffectState, story: EffectStory | None) -> EvidenceAdded:
        found = evidence_of(
            effect,
            evidence_class=EvidenceClass.NONE,
            source=REASON,
            proves=str(proves),
            reference="" if story is None else _reference(story),
            late=True,
            now=self._now,
        )
        return EvidenceAdded(evidence=found)


def _reference(story: EffectStory) -> str:
    """Return where sinks tell of an effect: `admitted at local 1.17, succeeded at local 1.18`."""
    parts = [f"admitted at {story.admitted_at}" if story.admitted_at else "", story.ended]
    return ", ".join(part for part in parts if part)
