"""Was every admission of a trail lawful at its place? An oracle of its own, which reads nothing but spans.

It walks the trail once, in ledger order, and keeps what a reader can know at each place: the revision in force, stops,
keys, tasks with their ceilings, what effects wait for and who said yes, and what is reserved and settled. At each
admission it asks the whole question anew. It shares no code with the product but the names in the vocabulary, and it is
told about policies what the test that wrote them knows: which tier each revision gives to whom.
"""

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from issuer import Issuer

PAGE = 1000
ENDS = {
    "effect.denied": "denied",
    "effect.declined": "declined",
    "effect.withdrawn": "withdrawn",
    "effect.expired": "expired",
    "effect.revoked": "revoked",
}
OUTCOMES = {"effect.succeeded", "effect.failed", "effect.no_effect"}


@dataclass(frozen=True, kw_only=True)
class Span:
    """One span as it stands in the trail."""

    sequence: int
    at_ms: int
    name: str
    effect: str | None
    said: Mapping[str, Any]

    def __getitem__(self, name: str) -> Any:
        return self.said.get(f"permit.{name}")


def spans_of(issuer: Issuer) -> list[Span]:
    """Read the whole trail of an open issuer."""
    found: list[Span] = []
    while True:
        after = found[-1].sequence if found else 0
        page = issuer._house.ledger.read(lambda view, after=after: view.spans_after(after, limit=PAGE))  # type: ignore[misc]
        for row in page:
            said = json.loads(row.body)["attributes"]
            found.append(
                Span(
                    sequence=row.position.sequence,
                    at_ms=row.at_ms,
                    name=said["permit.transition"],
                    effect=said.get("permit.effect.id"),
                    said=said,
                )
            )
        if len(page) < PAGE:
            return found


@dataclass(kw_only=True)
class Wanted:
    """What the trail says of one effect so far."""

    prepared_ms: int
    expires_ms: int
    span: Span
    state: str = "prepared"
    tier: str = ""
    wanted: dict[str, int] = field(default_factory=dict)
    said_yes: dict[str, str] = field(default_factory=dict)
    admissions: int = 0
    revoked_late: bool = False


@dataclass(kw_only=True)
class TaskSeen:
    """What the trail says of one task so far."""

    parent: str | None
    expires_ms: int
    state: str
    ceilings: dict[str, int | None]
    held: Counter[str] = field(default_factory=Counter)
    settled: Counter[str] = field(default_factory=Counter)


Tiers = Callable[[str, Span], frozenset[str]]
"""From the digest of a revision and the span that prepared an effect to the tiers that its policies then give it."""


@dataclass(kw_only=True)
class Oracle:
    """The reader.

    Attributes:
        tiers: what the test knows of the policies of each revision.
        answers_to: each actor's responsible person.
        groups: the groups of each person who may approve.
    """

    tiers: Tiers
    answers_to: Mapping[str, str]
    groups: Mapping[str, frozenset[str]]
    hosts: frozenset[str] = frozenset()
    revision: str = ""
    stops: dict[str, tuple[str, int]] = field(default_factory=dict)
    keys_revoked: set[str] = field(default_factory=set)
    tasks: dict[str, TaskSeen] = field(default_factory=dict)
    effects: dict[str, Wanted] = field(default_factory=dict)
    wrongs: list[str] = field(default_factory=list)
    admitted: int = 0

    def walk(self, spans: Sequence[Span]) -> "Oracle":
        """Read every span in order; `wrongs` is empty afterwards where everything was lawful."""
        for number, span in enumerate(spans, start=1):
            if span.sequence != number:
                self.wrongs.append(f"{span.sequence}: the trail has a gap")
            self._read(span)
        return self

    def _wrong(self, span: Span, why: str) -> None:
        self.wrongs.append(f"{span.sequence} {span.name} {span.effect}: {why}")

    def _read(self, span: Span) -> None:
        kind = span.name.partition(".")[0]
        if span.name == "revision.activated":
            self.revision = span["revision.activated"]
        elif kind == "stop":
            self._stop(span)
        elif kind == "task":
            self._task(span)
        elif kind == "effect" and span.effect is not None:
            self._effect(span, span.effect)

    def _stop(self, span: Span) -> None:
        name, before = span["stop"], self.stops.get(span["stop"], ("open", 0))
        if name.startswith("key:"):
            self.keys_revoked.add(name.removeprefix("key:"))
            return
        value = {"stop.frozen": "frozen", "stop.thawed": "open", "stop.revoked": "revoked"}[span.name]
        self.stops[name] = (value, span.at_ms if value == "revoked" else before[1])

    def _task(self, span: Span) -> None:
        task_id = span["task.id"]
        if span.name == "task.opened":
            pairs = [line.split("=") for line in span["ceiling"]]
            ceilings = {unit: None if amount == "inherit" else int(amount) for unit, amount in pairs}
            self.tasks[task_id] = TaskSeen(
                parent=span["parent.id"], expires_ms=span["expires_ms"], state="open", ceilings=ceilings
            )
            return
        states = {"task.frozen": "frozen", "task.thawed": "open", "task.closed": "closed"}
        self.tasks[task_id].state = states.get(span.name, self.tasks[task_id].state)

    def _effect(self, span: Span, effect_id: str) -> None:
        if span.name == "effect.prepared":
            self.effects[effect_id] = Wanted(prepared_ms=span.at_ms, expires_ms=span["expires_ms"], span=span)
            return
        effect = self.effects[effect_id]
        match span.name:
            case "effect.awaiting_approval":
                pairs = [line.rpartition("=") for line in span["approvers"]]
                effect.wanted = {group: int(count) for group, _, count in pairs}
                effect.state = "awaiting"
            case "effect.approved":
                self._approved(span, effect)
            case "effect.permitted":
                self._permitted(span, effect)
            case "effect.admitted":
                self._admitted(span, effect)
            case "effect.revoked_late":
                effect.revoked_late = True
            case "effect.unknown":
                effect.state = "unknown"
            case _:
                self._over(span, effect)

    def _over(self, span: Span, effect: Wanted) -> None:
        if span.name in ENDS:
            if effect.admissions:
                self._wrong(span, "what was admitted ended as if it never was")
            effect.state = ENDS[span.name]
        elif span.name in OUTCOMES:
            self._ended(span, effect)

    def _approved(self, span: Span, effect: Wanted) -> None:
        person = span["signer"]
        if effect.state != "awaiting":
            self._wrong(span, f"a yes for an effect that is {effect.state}")
        if person in effect.said_yes:
            self._wrong(span, "the same person twice")
        if span.at_ms >= effect.expires_ms:
            self._wrong(span, "a late yes")
        actor, subject = effect.span["actor"], effect.span["subject"]
        if person in {subject, self.answers_to[actor], effect.span["caller"]}:
            self._wrong(span, "duties are not separated")
        effect.said_yes[person] = span["key.fingerprint"]

    def _counting(self, effect: Wanted) -> dict[str, frozenset[str]]:
        return {
            person: self.groups[person]
            for person, key in effect.said_yes.items()
            if key not in self.keys_revoked and not self._is_stopped(f"person:{person}", effect)
        }

    def _is_quorum(self, effect: Wanted) -> bool:
        """Try every way to seat the people: slow, plain, and not the product's way."""
        places = [group for group, count in effect.wanted.items() for _ in range(count)]
        people = self._counting(effect)

        def seat(places: list[str], left: frozenset[str]) -> bool:
            if not places:
                return True
            return any(
                places[0] in people[person] and seat(places[1:], left - {person}) for person in sorted(left)
            )

        return bool(places) and seat(places, frozenset(people))

    def _permitted(self, span: Span, effect: Wanted) -> None:
        effect.tier = span["tier"]
        if effect.tier == "approval" and not (effect.state == "awaiting" and self._is_quorum(effect)):
            self._wrong(span, f"permitted from {effect.state} with {sorted(effect.said_yes)}")
        self._demand_authority(span, effect)
        effect.state, effect.expires_ms = "permitted", span["expires_ms"]

    def _is_stopped(self, name: str, effect: Wanted) -> bool:
        value, until_ms = self.stops.get(name, ("open", 0))
        return value != "open" or effect.prepared_ms <= until_ms

    def _demand_authority(self, span: Span, effect: Wanted) -> None:
        about = effect.span
        names = ["all", f"person:{about['subject']}", f"person:{self.answers_to[about['actor']]}"]
        names += [f"actor:{about['actor']}", f"operation:{about['operation']}", f"class:{about['class']}"]
        if about["caller"] in self.hosts:
            names.append(f"host:{about['caller']}")
        stopped = [name for name in names if self._is_stopped(name, effect)]
        if stopped:
            self._wrong(span, f"under the stop of {stopped}")
        for task_id in self._path(about["task.id"]):
            task = self.tasks[task_id]
            if task.state != "open" or span.at_ms >= task.expires_ms:
                self._wrong(span, f"in a task that is {task.state}, or over")
        tiers = self.tiers(self.revision, about)
        if not ("issue" in tiers or (effect.tier == "approval" and "approval" in tiers)):
            self._wrong(span, f"the policies of {self.revision[:8]} give {sorted(tiers)}")
        if span["revision"] != self.revision:
            self._wrong(span, "another revision than the one in force")

    def _path(self, task_id: str) -> list[str]:
        path: list[str] = []
        at: str | None = task_id
        while at is not None:
            path.append(at)
            at = self.tasks[at].parent
        return path

    def _cost(self, effect: Wanted) -> dict[str, int]:
        return {unit: int(amount) for unit, _, amount in (one.partition("=") for one in effect.span["cost"])}

    def _admitted(self, span: Span, effect: Wanted) -> None:
        self.admitted += 1
        effect.admissions += 1
        if effect.state != "permitted" or effect.admissions > 1:
            self._wrong(span, f"admitted from {effect.state}, for the {effect.admissions}. time")
        if span.at_ms >= effect.expires_ms:
            self._wrong(span, "admitted after the permit was over")
        if effect.tier == "approval" and not self._is_quorum(effect):
            self._wrong(span, f"the yes of {sorted(self._counting(effect))} is no quorum of {effect.wanted}")
        self._demand_authority(span, effect)
        for task_id in self._path(effect.span["task.id"]):
            task = self.tasks[task_id]
            for unit, amount in self._cost(effect).items():
                task.held[unit] += amount
                ceiling = task.ceilings.get(unit, 0)
                if ceiling is not None and task.held[unit] + task.settled[unit] > ceiling:
                    self._wrong(span, f"{task.held[unit]} + {task.settled[unit]} {unit} above {ceiling}")
        effect.state = "admitted"

    def _ended(self, span: Span, effect: Wanted) -> None:
        if not effect.admissions:
            self._wrong(span, "an outcome without an admission")
        charged = dict.fromkeys(self._cost(effect), 0)
        for line in span["charged"] or ():
            unit, _, amount = line.partition("=")
            charged[unit] = int(amount)
        for task_id in self._path(effect.span["task.id"]):
            task = self.tasks[task_id]
            task.held.subtract(self._cost(effect))
            task.settled.update(charged)
        effect.state = span.name.removeprefix("effect.")
