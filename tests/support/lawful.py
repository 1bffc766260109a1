"""Was every admission of a trail lawful at its place? An oracle of its own, which reads nothing but spans.

It walks the trail once, in ledger order, and keeps what a reader can know at each place: the revision in force, stops,
keys, tasks with their ceilings and slots, what effects wait for and who said yes, and what is held and settled. At each
yes, permit and admission it asks the whole question anew, and where a winner is known to have looked once more before
it sent, there as well. It shares no code with the product but the names in the vocabulary, and it is told about the
owner's revisions what the test that wrote them knows: `Terms`. A span that it cannot judge is a wrong.
"""

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from issuer import Issuer
from tests.support.lawful_tasks import TaskSeen, opened_task

PAGE: Final = 1000
ENDS: Final = {
    "effect.denied": "denied",
    "effect.declined": "declined",
    "effect.withdrawn": "withdrawn",
    "effect.expired": "expired",
    "effect.revoked": "revoked",
}
PENDING: Final = ("prepared", "awaiting", "permitted")
ENDS_FROM: Final = {"effect.denied": ("prepared",), "effect.declined": ("awaiting",)}
OUTCOMES: Final = ("effect.succeeded", "effect.failed", "effect.no_effect", "effect.unknown")
SAYS_NOTHING: Final = frozenset(
    {
        *("effect.reported", "effect.inspecting", "effect.inspected", "effect.obliged"),
        *("ledger.created", "sink.registered", "ledger.probe", "refused", "observed", "effect.content_shown"),
        *("credential.issued", "credential.revoked", "ledger.clock_accepted"),
        *(
            "audit.checkpoint_signed",
            "audit.exported",
            "noise",
            "sink.failed",
            "sink.recovered",
            "ledger.collected",
        ),
    }
)
"""Spans that change nothing of what an admission may rest on; of any other the oracle has to know what it does."""


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


@dataclass(frozen=True, kw_only=True)
class Terms:
    """What a test knows of one revision of the owner's files.

    Attributes:
        automatic, asking: up to which cost a policy issues, or asks people, by operation; what is not named is denied.
        quorum: how many people of each group are asked then.
        answers_to: each actor's responsible person.
        groups: the groups of each person with the role of an approver.
        keys: the fingerprints of each person's registered keys.
    """

    automatic: Mapping[str, int]
    asking: Mapping[str, int]
    quorum: Mapping[str, int]
    answers_to: Mapping[str, str]
    groups: Mapping[str, frozenset[str]]
    keys: Mapping[str, frozenset[str]]

    def issues(self, prepared: Span) -> bool:
        """Say whether a policy issues by itself what this span prepared."""
        return _total(prepared) <= self.automatic.get(prepared["operation"], -1)

    def asks(self, prepared: Span) -> bool:
        """Say whether a policy lets people decide about it."""
        return _total(prepared) <= self.asking.get(prepared["operation"], -1)


def _total(prepared: Span) -> int:
    return sum(amounts(prepared["cost"]).values())


def amounts(lines: Sequence[str] | None) -> dict[str, int]:
    """Read `unit=amount` lines."""
    return {unit: int(amount) for unit, _, amount in (one.rpartition("=") for one in lines or ())}


@dataclass(frozen=True, kw_only=True)
class Look:
    """A winner's own word that it had not looked once more yet when the trail was that long, by its clock."""

    effect: str
    sequence: int
    at_ms: int


@dataclass(kw_only=True)
class Wanted:
    """What the trail says of one effect so far."""

    span: Span
    expires_ms: int
    state: str = "prepared"
    tier: str = ""
    asked: dict[str, int] = field(default_factory=dict)
    statement: str | None = None
    said_yes: dict[str, str] = field(default_factory=dict)
    admissions: int = 0
    revoked_late: bool = False
    deadline_ms: int = 0
    held_back: str = ""
    must_not_send: list[str] = field(default_factory=list)

    @property
    def cost(self) -> dict[str, int]:
        """What its admission reserves."""
        return amounts(self.span["cost"])


@dataclass(kw_only=True)
class Oracle:
    """The reader; `terms` tells what a revision means, by its digest, and raises `KeyError` for one it does not know.

    Attributes:
        looks: what winners said of their second look, in any order.
        wrongs: what was not lawful, in sentences that begin with the sequence.
        seen: how often each kind of span was read.
    """

    terms: Callable[[str], Terms]
    looks: Sequence[Look] = ()
    revision: str = ""
    at_ms: int = 0
    stops: dict[str, tuple[str, int]] = field(default_factory=dict)
    keys_revoked: set[str] = field(default_factory=set)
    tasks: dict[str, TaskSeen] = field(default_factory=dict)
    effects: dict[str, Wanted] = field(default_factory=dict)
    wrongs: list[str] = field(default_factory=list)
    seen: Counter[str] = field(default_factory=Counter)

    @property
    def admitted(self) -> int:
        """How many admissions the trail has."""
        return self.seen["effect.admitted"]

    def walk(self, spans: Sequence[Span]) -> "Oracle":
        """Read every span in order; `wrongs` is empty afterwards where everything was lawful."""
        looks: dict[int, list[Look]] = {}
        for look in self.looks:
            looks.setdefault(look.sequence, []).append(look)
        for number, span in enumerate(spans, start=1):
            if span.sequence != number:
                self._wrong(span, f"the trail has a gap: it is number {number}")
            if span.at_ms < self.at_ms:
                self._wrong(span, "the time went back")
            self.at_ms = span.at_ms
            self.seen[span.name] += 1
            self._read(span)
            for look in looks.get(span.sequence, ()):
                self._looked(look)
        self.wrongs += [
            f"{effect_id}: {effect.state} though the winner could see: {'; '.join(effect.must_not_send)}"
            for effect_id, effect in self.effects.items()
            if effect.must_not_send and effect.state in {"succeeded", "failed"}
        ]
        return self

    def _wrong(self, span: Span, why: str) -> None:
        self.wrongs.append(f"{span.sequence} {span.name} {span.effect}: {why}")

    def _read(self, span: Span) -> None:
        told = span["revision"]
        if told is not None and told != self.revision:
            self._wrong(span, "another revision than the one in force")
        kind = span.name.partition(".")[0]
        if span.name == "revision.activated":
            if (span["revision.before"] or "") != self.revision:
                self._wrong(span, "it replaces what was not in force")
            self.revision = span["revision.activated"]
        elif span.name in SAYS_NOTHING:
            pass
        elif kind == "stop":
            self._stop(span)
        elif kind == "task":
            self._task(span)
        elif kind == "effect" and span.effect is not None:
            self._effect(span, span.effect)
        else:
            self._wrong(span, "it cannot be judged here")

    # ------------------------------------------------------------------------------- stops and tasks

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
            self.tasks[task_id] = opened_task(span.said)
        elif not self.tasks[task_id].change(span.name, span.said):
            self._wrong(span, "a task that is closed is closed for good, or the span is of an unknown kind")

    def _path(self, effect: Wanted) -> list[TaskSeen]:
        path: list[TaskSeen] = []
        at: str | None = effect.span["task.id"]
        while at is not None:
            path.append(self.tasks[at])
            at = path[-1].parent
        return path

    def _is_stopped(self, name: str, effect: Wanted) -> bool:
        """Say whether a name is stopped now, or was revoked no earlier than the effect was prepared."""
        value, until_ms = self.stops.get(name, ("open", 0))
        return value != "open" or effect.span.at_ms <= until_ms

    def _against(self, effect: Wanted, at_ms: int) -> list[str]:
        """Return what forbids to use the authority of an effect, whatever policies and people say."""
        about, terms = effect.span, self.terms(self.revision)
        people = [about["subject"], terms.answers_to[about["actor"]], *effect.said_yes]
        names = [
            "all",
            f"actor:{about['actor']}",
            f"operation:{about['operation']}",
            f"class:{about['class']}",
        ]
        names += [f"person:{person}" for person in people]
        if about["caller"].startswith("host:"):
            names.append(about["caller"])
        found = [f"the stop of {name}" for name in names if self._is_stopped(name, effect)]
        found += [
            f"{one}'s key is revoked" for one, key in effect.said_yes.items() if key in self.keys_revoked
        ]
        for task in self._path(effect):
            found += task.against(at_ms)
        return found

    # ------------------------------------------------------------------------------- effects

    def _effect(self, span: Span, effect_id: str) -> None:
        if span.name == "effect.prepared":
            if effect_id in self.effects:
                self._wrong(span, "prepared twice")
            self.effects[effect_id] = effect = Wanted(span=span, expires_ms=span["expires_ms"])
            self._demand_named(span, effect)
            return
        if effect_id not in self.effects:
            self._wrong(span, "of an effect that was never prepared")
            return
        effect = self.effects[effect_id]
        if any(span[name] != effect.span[name] for name in ("task.id", "actor", "subject", "operation")):
            self._wrong(span, "it tells of another effect than was prepared")
        handlers = {
            "effect.awaiting_approval": self._awaiting,
            "effect.approved": self._approved,
            "effect.permitted": self._permitted,
            "effect.admitted": self._admitted,
            "effect.revoked_late": self._revoked_late,
            **dict.fromkeys(ENDS, self._over),
            **dict.fromkeys(OUTCOMES, self._ended),
        }
        handlers.get(span.name, self._unknown)(span, effect)

    def _unknown(self, span: Span, _effect: Wanted) -> None:
        self._wrong(span, "it cannot be judged here")

    def _revoked_late(self, span: Span, effect: Wanted) -> None:
        if effect.state not in {"admitted", "unknown"}:
            self._wrong(span, f"revoked late, and it is {effect.state}")
        effect.revoked_late = True

    def _demand_named(self, span: Span, effect: Wanted) -> None:
        """Hold an effect to what its task names: whom, for whom, and what (BUD-01, BUD-06)."""
        leaf = self._path(effect)[0]
        if span["actor"] not in leaf.actors or span["subject"] != leaf.subject:
            self._wrong(span, "the task does not name the actor or the subject")

    def _awaiting(self, span: Span, effect: Wanted) -> None:
        terms = self.terms(self.revision)
        if effect.state != "prepared" or not terms.asks(effect.span) or terms.issues(effect.span):
            self._wrong(span, f"people are asked, from {effect.state}")
        effect.asked = amounts(span["approvers"])
        if not effect.asked or effect.asked != dict(terms.quorum):
            self._wrong(span, f"asked are {effect.asked}, and the policies say {dict(terms.quorum)}")
        effect.expires_ms = span["expires_ms"] or effect.expires_ms
        effect.statement, effect.state = span["statement.digest"], "awaiting"

    def _approved(self, span: Span, effect: Wanted) -> None:
        person, key, terms = span["signer"], span["key.fingerprint"], self.terms(self.revision)
        if effect.state != "awaiting":
            self._wrong(span, f"a yes for an effect that is {effect.state}")
        if person in effect.said_yes:
            self._wrong(span, "the same person twice")
        if span.at_ms >= effect.expires_ms:
            self._wrong(span, "a late yes")
        if span["statement.digest"] != effect.statement:
            self._wrong(span, "a yes to another statement")
        effect.said_yes[person] = key
        if not self._counting(effect).get(person, frozenset()) & self._asked(effect).keys():
            self._wrong(span, "a yes that does not count")
        against = self._against(effect, span.at_ms)
        if against or not (terms.asks(effect.span) or terms.issues(effect.span)):
            self._wrong(span, f"a yes under {against or 'policies that do not ask'}")

    def _counting(self, effect: Wanted) -> dict[str, frozenset[str]]:
        """Return whose yes counts now, with their groups: rules for one person, one after the other."""
        terms, about = self.terms(self.revision), effect.span
        interested = {about["subject"], terms.answers_to[about["actor"]], about["caller"]}
        return {
            person: terms.groups[person]
            for person, key in effect.said_yes.items()
            if person in terms.groups
            and person not in interested
            and key in terms.keys.get(person, ())
            and key not in self.keys_revoked
            and not self._is_stopped(f"person:{person}", effect)
        }

    def _asked(self, effect: Wanted) -> dict[str, int]:
        """Return who has to be there: whom was asked at first, and whom the policies of now ask."""
        terms = self.terms(self.revision)
        now = terms.quorum if terms.asks(effect.span) else {}
        return {group: max(effect.asked.get(group, 0), now.get(group, 0)) for group in {*effect.asked, *now}}

    def _is_quorum(self, effect: Wanted) -> bool:
        """Try every way to seat the people: slow, plain, and not the product's way."""
        wanted = self._asked(effect)
        places = [group for group, count in wanted.items() for _ in range(count)]
        people = self._counting(effect)

        def seat(places: list[str], left: frozenset[str]) -> bool:
            if not places:
                return True
            return any(
                places[0] in people[person] and seat(places[1:], left - {person}) for person in sorted(left)
            )

        return bool(effect.asked) and seat(places, frozenset(people))

    def _demand_authority(self, span: Span, effect: Wanted) -> None:
        """Ask everything that a permit and an admission both need."""
        if span["tier"] != effect.tier or effect.tier not in {"issue", "approval"}:
            self._wrong(span, f"of the tier {span['tier']}, and the permit is of {effect.tier}")
        against = self._against(effect, span.at_ms)
        if against:
            self._wrong(span, f"under {'; '.join(against)}")
        if span.at_ms >= effect.expires_ms:
            self._wrong(span, "when it was over")
        terms = self.terms(self.revision)
        if effect.tier == "approval":
            if not self._is_quorum(effect):
                self._wrong(span, f"the yes of {sorted(self._counting(effect))} is no quorum")
            if not set(span["approvals"] or ("nobody",)) <= set(self._counting(effect)):
                self._wrong(span, f"it counts {span['approvals']}")
        if not (terms.issues(effect.span) or (effect.tier == "approval" and terms.asks(effect.span))):
            self._wrong(span, f"the policies of {self.revision[:8]} do not give it")

    def _permitted(self, span: Span, effect: Wanted) -> None:
        effect.tier = span["tier"]
        if effect.state != ("awaiting" if effect.tier == "approval" else "prepared"):
            self._wrong(span, f"permitted as {effect.tier} from {effect.state}")
        self._demand_authority(span, effect)
        for task in self._path(effect):
            for wrong in task.take(effect.span.said):
                self._wrong(span, wrong)
        if span["expires_ms"] > effect.expires_ms or span["expires_ms"] <= span.at_ms:
            self._wrong(span, "a permit that lives longer than what was asked, or not at all")
        effect.state, effect.expires_ms = "permitted", span["expires_ms"]

    def _admitted(self, span: Span, effect: Wanted) -> None:
        effect.admissions += 1
        if effect.state != "permitted" or effect.admissions > 1:
            self._wrong(span, f"admitted from {effect.state}, for the {effect.admissions}. time")
        if amounts(span["cost"]) != effect.cost:
            self._wrong(span, "for another cost than was prepared")
        self._demand_authority(span, effect)
        for task in self._path(effect):
            for wrong in task.hold(effect.cost):
                self._wrong(span, wrong)
        effect.state, effect.deadline_ms = "admitted", span["deadline_ms"]

    def _over(self, span: Span, effect: Wanted) -> None:
        if effect.state not in ENDS_FROM.get(span.name, PENDING) or effect.admissions:
            self._wrong(span, f"it ended like this from {effect.state}")
        if span.name == "effect.expired" and span.at_ms < effect.expires_ms:
            self._wrong(span, "it expired too early")
        if effect.state == "permitted":
            self._give_back(effect)
        effect.state = ENDS[span.name]

    def _give_back(self, effect: Wanted) -> None:
        for task in self._path(effect):
            task.give_back(effect.span.said)

    def _ended(self, span: Span, effect: Wanted) -> None:
        word = span.name.removeprefix("effect.")
        if effect.state not in ({"admitted"} if word == "unknown" else {"admitted", "unknown"}):
            self._wrong(span, f"an outcome of what is {effect.state}")
        effect.state = word
        if word == "unknown":
            return
        charged = dict.fromkeys(effect.cost, 0) | amounts(span["charged"])
        if word == "no_effect":
            self._give_back(effect)
            if span["evidence.class"] == "not_sent":
                effect.held_back = span["reason"] or ""
                if not effect.held_back:
                    self._wrong(span, "the winner sent nothing, and does not say why")
        for task in self._path(effect):
            task.settle(effect.cost, charged)

    # ------------------------------------------------------------------------------- what was sent

    def _looked(self, look: Look) -> None:
        """Ask what a winner's second look had to find, at the earliest place where it can have been (ADM-05)."""
        effect = self.effects[look.effect]
        found = self._against(effect, look.at_ms)
        found += ["it was revoked late"] if effect.revoked_late else []
        found += ["its permit was over"] if look.at_ms >= effect.expires_ms else []
        found += ["its deadline was over"] if look.at_ms >= effect.deadline_ms else []
        effect.must_not_send += found

    def judge_sent(self, sent: Mapping[str, int], given: Mapping[str, int]) -> list[str]:
        """Return what is wrong with what the world saw: requests by effect, and admissions that hosts were told of."""
        wrongs = []
        for effect_id, times in (Counter(sent) + Counter(given)).items():
            effect = self.effects.get(effect_id)
            if effect is None or not effect.admissions:
                wrongs.append(f"{effect_id} was sent, and never admitted")
                continue
            if times > 1:
                wrongs.append(f"{effect_id} was sent {times} times")
            if effect.held_back:
                wrongs.append(
                    f"{effect_id} was sent, and its winner says that it was not: {effect.held_back}"
                )
            if effect.must_not_send:
                wrongs.append(f"{effect_id} was sent under {'; '.join(effect.must_not_send)}")
        wrongs += [
            f"{effect_id} is {effect.state}, and nothing was sent"
            for effect_id, effect in self.effects.items()
            if effect.state in {"succeeded", "failed"} and effect_id not in {*sent, *given}
        ]
        return wrongs
