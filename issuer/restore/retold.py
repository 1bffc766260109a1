"""What spans after a backup tell: what became of tasks, which effects were admitted, which invocations ended.

Rules: LED-08. Whoever can write a sink's file can go on in it with spans of their own, so only what takes away or holds
is heard: an admission, a new task (which stays frozen), a freeze, a closure, a lower ceiling, a revocation, a changed
credential or revision. A grant, a thaw or an outcome that would release money is heard and not believed. Pure.
Next: `issuer.restore.steps`, which turns it into the first steps of a new epoch.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from audit.sinks.reading import ReadSpan
from ledger.authority import Stop
from ledger.invocations import InvocationOutcome
from ledger.model import (
    PERMIT_ID_PATTERN,
    TASK_ID_PATTERN,
    EffectId,
    InstantMs,
    PermitId,
    Scope,
    TaskId,
    Unit,
    costs,
)
from ledger.transitions import AttributeValue, Transition, TransitionName

INHERIT: Final = "inherit"

_TASKS: Final = frozenset(
    {
        *(TransitionName.TASK_OPENED, TransitionName.TASK_FROZEN, TransitionName.TASK_CLOSED),
        TransitionName.TASK_LOWERED,
    }
)
_BEFORE: Final = frozenset({TransitionName.EFFECT_PREPARED, TransitionName.EFFECT_PERMITTED})
_ADMITS: Final = frozenset({TransitionName.EFFECT_ADMITTED, TransitionName.EFFECT_REPLAYED})
_ENDS: Final = frozenset(
    {TransitionName.EFFECT_SUCCEEDED, TransitionName.EFFECT_FAILED, TransitionName.EFFECT_NO_EFFECT}
)
_STOPS: Final = {TransitionName.STOP_FROZEN: Stop.FROZEN, TransitionName.STOP_REVOKED: Stop.REVOKED}
_CREDENTIALS: Final = frozenset({TransitionName.CREDENTIAL_ISSUED, TransitionName.CREDENTIAL_REVOKED})
_HEARD: Final = (
    _TASKS
    | _BEFORE
    | _ADMITS
    | _ENDS
    | _STOPS.keys()
    | _CREDENTIALS
    | {TransitionName.INVOCATION_ENDED, TransitionName.REVISION_ACTIVATED, TransitionName.EFFECT_REVOKED_LATE}
    | {TransitionName.SINK_REPLACED}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskEvent:
    """One span of a task, as it was told; `attributes` are held to the vocabulary."""

    name: TransitionName
    task_id: TaskId
    attributes: Mapping[str, AttributeValue]
    at_ms: InstantMs


@dataclass(slots=True, kw_only=True)
class EffectStory:
    """What was told of one effect after the backup: what its spans say, and where they stand.

    Attributes:
        admitted_at: where its admission stands, such as `local 1.17`; empty where none was told.
        ended: what outcome was told and where, such as `succeeded at local 1.18`.
    """

    effect_id: EffectId
    attributes: dict[str, AttributeValue] = field(default_factory=dict)
    prepared_ms: InstantMs | None = None
    permitted_ms: InstantMs | None = None
    admitted_at: str = ""
    ended: str = ""

    def text(self, name: str) -> str:
        """Return a text attribute.

        Raises:
            ValueError: no span of this effect told it.
        """
        value = self.attributes.get(f"permit.{name}")
        if not isinstance(value, str):
            raise ValueError(f"{name} is missing in the spans of an admitted effect")  # noqa: TRY004 - one kind of fault
        return value

    def whole(self, name: str, otherwise: int) -> int:
        """Return a whole number, or `otherwise` where none was told."""
        value = self.attributes.get(f"permit.{name}")
        return value if type(value) is int else otherwise

    def digest(self, name: str) -> bytes | None:
        """Return 32 bytes that were told in hex, or None."""
        value = self.attributes.get(f"permit.{name}")
        return bytes.fromhex(value) if isinstance(value, str) else None

    def cost(self) -> Mapping[Unit, int]:
        """Return the maximum cost that was held."""
        return amounts_in(self.attributes.get("permit.cost", ()))

    def permit_id(self) -> PermitId:
        """Return the permit that was spent; one that was not named is called after its effect."""
        value = self.attributes.get("permit.permit.id")
        if isinstance(value, str) and PERMIT_ID_PATTERN.match(value):
            return PermitId(value)
        return PermitId(f"pmt_{self.effect_id.removeprefix('eff_')}")


@dataclass(slots=True, kw_only=True)
class Retold:
    """All of it, in the order in which it was told; a span that two sinks hold is heard once."""

    tasks: list[TaskEvent] = field(default_factory=list)
    effects: dict[EffectId, EffectStory] = field(default_factory=dict)
    invocations: dict[str, InvocationOutcome] = field(default_factory=dict)
    stops: dict[str, Stop] = field(default_factory=dict)
    credentials: set[str] = field(default_factory=set)
    revoked_late: set[EffectId] = field(default_factory=set)
    left_sinks: set[str] = field(default_factory=set)
    """Sinks that stood elsewhere in the end: what is at their place of the backup proves nothing of what came then."""
    is_revised: bool = False
    last_ms: int = 0
    heard: set[bytes] = field(default_factory=set)

    def hear(self, sink: str, span: ReadSpan) -> None:
        """Take in one span that the backup does not hold.

        Raises:
            ValueError: a span that counts is not in the vocabulary.
        """
        self.last_ms = max(self.last_ms, span.at_ms)
        if span.name not in _HEARD or span.tail.leaf in self.heard:
            return
        self.heard.add(span.tail.leaf)
        transition = span.transition()
        if transition.name in _TASKS:
            self._hear_task(transition, span)
        elif transition.name is TransitionName.INVOCATION_ENDED:
            told = str(transition.attributes["permit.outcome"])
            self.invocations.setdefault(transition.story, InvocationOutcome(told))
        elif transition.name in _STOPS:
            self._hear_stop(str(transition.attributes["permit.stop"]), _STOPS[transition.name])
        elif transition.name in _CREDENTIALS:
            self.credentials.add(str(transition.attributes["permit.credential"]))
        elif transition.name is TransitionName.SINK_REPLACED:
            self.left_sinks.add(str(transition.attributes["permit.sink.name"]))
        elif transition.name is TransitionName.REVISION_ACTIVATED:
            self.is_revised = True
        elif transition.name is TransitionName.EFFECT_REVOKED_LATE and transition.effect_id is not None:
            self.revoked_late.add(transition.effect_id)
        elif transition.effect_id is not None:
            self._hear_effect(transition, transition.effect_id, sink, span)

    def _hear_stop(self, name: str, value: Stop) -> None:
        """Take in a stop; what was revoked once stays so, whatever was said of it afterwards."""
        if self.stops.get(name) is not Stop.REVOKED:
            self.stops[name] = value

    def _hear_task(self, transition: Transition, span: ReadSpan) -> None:
        task_id = transition.attributes["permit.task.id"]
        if transition.story != task_id or not TASK_ID_PATTERN.match(transition.story):
            raise ValueError("a span of a task is in another story")
        event = TaskEvent(
            name=transition.name,
            task_id=TaskId(transition.story),
            attributes=transition.attributes,
            at_ms=span.at_ms,
        )
        self.tasks.append(event)

    def _hear_effect(self, transition: Transition, effect_id: EffectId, sink: str, span: ReadSpan) -> None:
        story = self.effects.setdefault(effect_id, EffectStory(effect_id=effect_id))
        place = f"{sink} {span.tail.epoch}.{span.tail.sequence}"
        if transition.name in _ENDS:
            story.ended = f"{transition.state_to} at {place}"
            return
        # What was told first counts, and the preparation before all: a permit's end is not that of its binding.
        if transition.name is TransitionName.EFFECT_PREPARED:
            story.attributes.update(transition.attributes)
            story.prepared_ms = span.at_ms
            return
        story.attributes = {**transition.attributes, **story.attributes}
        if transition.name is TransitionName.EFFECT_PERMITTED:
            story.permitted_ms = span.at_ms
        else:
            story.admitted_at = story.admitted_at or place

    def admitted(self) -> list[EffectStory]:
        """Return the effects whose admission was told, in the order in which they were first heard of."""
        return [story for story in self.effects.values() if story.admitted_at]


def amounts_in(texts: AttributeValue) -> Mapping[Unit, int]:
    """Return amounts that a span shows as `unit=amount`."""
    return costs(_pairs(texts))


def ceilings_in(texts: AttributeValue) -> Mapping[Unit, int | None]:
    """Return ceilings that a span shows as `unit=amount` or `unit=inherit`."""
    said = dict(text.rsplit("=", 1) for text in _listed(texts))
    amounts = costs({unit: int(amount) for unit, amount in said.items() if amount != INHERIT})
    inherited = {Unit(unit): None for unit, amount in said.items() if amount == INHERIT}
    return dict(sorted({**amounts, **inherited}.items()))


def scope_in(texts: AttributeValue) -> Scope:
    """Return a scope that a span shows as `kind:name=count`; where nothing is shown, nothing may be done."""
    named: dict[str, dict[str, int | None]] = {}
    for text in _listed(texts):
        kind, _colon, rest = text.partition(":")
        name, count = rest.rsplit("=", 1)
        named.setdefault(kind, {})[name] = None if count == INHERIT else int(count)
    return Scope(
        classes=named.get("class", {}),
        operations=named.get("operation"),
        resources=named.get("resource"),
    )


def _pairs(texts: AttributeValue) -> dict[str, int]:
    return {unit: int(amount) for unit, amount in (text.rsplit("=", 1) for text in _listed(texts))}


def _listed(texts: Any) -> tuple[str, ...]:  # noqa: ANN401 - whatever a span holds
    return texts if isinstance(texts, tuple) else ()
