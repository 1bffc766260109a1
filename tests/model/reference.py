"""The reference: every command about effects, predicted from nothing but what happened before.

Each command returns the answer that the product must give. Those that come back from outside the ledger are stories:
they stop at the points that the product names (`issuer.flow.steps`), where another process may act in between.
Rules: PER, ADM, BUD, REP, POL-02, POL-03, LED-02.
"""

from collections.abc import Generator, Mapping
from dataclasses import asdict, dataclass
from typing import Final

from tests.model.reference_keeping import Keeping
from tests.model.terms import (
    ACTORS,
    CLASSES,
    EFFECTS_MAX,
    OPERATIONS,
    PEOPLE,
    UNENDED_MAX,
    UNITS,
    may_ask,
    may_issue,
)
from tests.model.world import (
    KINDS,
    PENDING,
    SETTLED,
    UNRESOLVED,
    UNUSED,
    ClockUntrusted,
    Effect,
    Request,
    Said,
    Task,
    about,
)

__all__ = ["Outcome", "Reference", "Story"]

Story = Generator[str, None, Said]
No = tuple[str, str | None, str | None]
"""Code, field and level."""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What comes back of a sending: a word, and the charge that the service names, if it does."""

    word: str
    charged: Mapping[str, object] | None = None


NOT_YET: Final = ("prepared", "awaiting_approval")
AMOUNTS: Final = range(21)
Proof = tuple[str, dict[str, int], tuple[str, str]]
"""The state that is proven, what is charged, and the class and source of the evidence."""
NOT_SENT: Final[Proof] = ("no_effect", {}, ("not_sent", "winner"))


def latest(operation: str, task: Task, now: int) -> int:
    """Return when a permit that begins at `now` is over: the earliest of all caps (PER-03)."""
    of = OPERATIONS[operation]
    lifetime = min(of.lifetime, CLASSES[of.of_class].lifetime)
    return min(now + lifetime, *(level.expires for level in task.path))


class Reference(Keeping):
    """The whole model."""

    # ------------------------------------------------------------------------------ asking for one

    def request(self, asked: Request, *, hold: bool) -> Said:
        """Prepare an effect, and unless it is held, decide about it."""
        try:
            self.sweep()
            self.collect()
            no = self._unknown_name(asked)
            return no or self._known(asked) or self._new(asked, hold=hold)
        except ClockUntrusted:
            return Said(code="clock_untrusted")

    def _unknown_name(self, asked: Request) -> Said | None:
        if asked.operation not in OPERATIONS:
            return self.refused("unknown_reference", field="operation")
        if asked.actor not in ACTORS:
            return self.refused("unknown_reference", field="actor")
        if asked.task not in self.tasks:
            return self.refused("unknown_reference", field="task")
        if asked.subject is not None and asked.subject not in PEOPLE:
            return self.refused("unknown_reference", field="subject")
        return None if asked.amount in AMOUNTS else self.refused("malformed", field="amount")

    def _known(self, asked: Request) -> Said | None:
        """Answer a key that stands for something already (EFF-11)."""
        task = self.tasks[asked.task]
        for effect in self.effects:
            if effect.task is task and effect.asked.key == asked.key:
                subject = asked.subject or task.subject
                differs = (
                    ("actor", asked.actor != effect.asked.actor),
                    ("operation", asked.operation != effect.asked.operation),
                    ("amount", asked.amount != effect.asked.amount),
                    ("order", asked.order != effect.asked.order),
                    ("subject", subject != effect.subject),
                )
                for field, it_does in differs:
                    if it_does:
                        return self.refused("request_key_reused", field=field)
                return self.refused("collected", effect=effect) if effect.collected else self.standing(effect)
        return None

    def _new(self, asked: Request, *, hold: bool) -> Said:
        now, task = self.time(), self.tasks[asked.task]
        stop = self.stopped(task, now)
        if stop is not None:
            return self.refused(stop[0], level=stop[1])
        if asked.actor not in task.actors:
            return self.refused("forbidden", field="actor", level=task.name)
        subject = asked.subject or task.subject
        if subject != task.subject:
            return self.refused("forbidden", field="subject", level=task.name)
        effect = Effect(
            number=len(self.effects),
            task=task,
            asked=asked,
            subject=subject,
            prepared=now,
            expires=latest(asked.operation, task, now),
        )
        no = self._no_room(effect, stored=False)
        if no is not None:
            return self.refused(no[0], field=no[1], level=no[2])
        self.effects.append(effect)
        self.move(effect, "prepared", now)
        return about("prepared", effect) if hold else self._decide(effect, now, held=False)

    def _no_room(self, effect: Effect, *, stored: bool) -> No | None:
        """Return why an effect has no place in its task, or in the ledger (BUD-06, BUD-02, LED-02)."""
        for level in effect.task.path:
            for kind in KINDS:
                names = level.scope[kind]
                if names is not None and effect.uses[kind] not in names:
                    return "outside_task", kind, level.name
        for level in effect.task.path:
            for kind in KINDS:
                count = (level.scope[kind] or {}).get(effect.uses[kind])
                if count is not None and self.slots_used(level, kind, effect.uses[kind]) >= count:
                    return "slots_exhausted", kind, level.name
        others = [e for e in self.effects if e is not effect and e.task is effect.task]
        if sum(other.state in PENDING + UNRESOLVED for other in others) >= UNENDED_MAX:
            return "task_full", None, effect.task.name
        short = self.short(effect.task, effect.cost)
        if short is not None:
            return short
        if not stored and len(self.retained()) >= EFFECTS_MAX:
            return "ledger_full", "effects", None
        return None

    def _class_bound(self, effect: Effect, day: str) -> No | None:
        """Return which bound of its class closes the automatic tier (POL-03)."""
        name, task = effect.of.of_class, effect.task
        for unit, amount in sorted(effect.cost.items()):
            if amount > effect.bounds.each.get(unit, 0):
                return "class_exhausted", unit, name
        if len(self.permits(name, effect, lambda e: e.task is task)) >= effect.bounds.per_task:
            return "class_exhausted", None, task.name
        if len(self.permits(name, effect, lambda e: e.task.root is task.root)) >= effect.bounds.per_root:
            return "class_exhausted", None, task.root.name
        today = self.permits(name, effect, lambda e: self.day(e.issued) == day)
        for unit, bound in effect.bounds.per_day.items():
            used = len(today) if unit == "permits" else sum(e.cost.get(unit, 0) for e in today)
            if used + (1 if unit == "permits" else effect.cost.get(unit, 0)) > bound:
                return "class_exhausted", None, day
        return None

    def _judge(self, effect: Effect, now: int, day: str) -> tuple[bool, No]:
        """Say whether an effect may happen without a person, and the no that it gets if not; remember the facts."""
        payload, resource = self.earlier(effect)
        left, name, task = self.remaining(effect.task), effect.of.of_class, effect.task
        today = self.permits(name, effect, lambda e: self.day(e.issued) == self.day(now))
        effect.facts = {
            **{f"same_payload_{state}": number for state, number in asdict(payload).items()},
            **{f"same_resource_{state}": number for state, number in asdict(resource).items()},
            "remaining": left,
            "now_ms": now,
            "task_permits": len(self.permits(name, effect, lambda e: e.task is task)),
            "root_permits": len(self.permits(name, effect, lambda e: e.task.root is task.root)),
            "day_permits": len(today) if effect.bounds.per_day else 0,
        }
        may = may_issue(
            actor=effect.asked.actor,
            operation=effect.asked.operation,
            cost=effect.cost.get("USD.cent", 0),
            left=left["USD.cent"],
            payload=payload,
            resource=resource,
        )
        bound = self._class_bound(effect, day) if may else None
        return may and bound is None, bound or ("denied", None, None)

    def _decide(self, effect: Effect, now: int, *, held: bool) -> Said:
        """Issue, ask a person, or deny; what was not held waits as long as its class gives people (APP-03)."""
        may, no = self._judge(effect, now, self.day(now))
        effect.decisions.append(effect.facts)
        if may:
            effect.issued = now
            effect.permit_expires = min(effect.expires, latest(effect.asked.operation, effect.task, now))
            self.move(effect, "permitted", now)
            return about("permitted", effect)
        if may_ask(operation=effect.asked.operation, cost=effect.cost.get("USD.cent", 0)):
            if not held:
                waits = now + CLASSES[effect.of.of_class].wait
                effect.expires = min(waits, *(level.expires for level in effect.task.path))
            self.move(effect, "awaiting_approval", now)
            return about("awaiting_approval", effect)
        self.move(effect, "denied", now)
        return about(no[0], effect, field=no[1], level=no[2])

    def request_held(self, number: int) -> Said:
        """Take a held effect further."""
        effect = self.named(number)
        if isinstance(effect, Said):
            return effect
        if effect.state != "prepared":
            return self.standing(effect)
        try:
            now = self.time()
            stop = self.stopped(effect.task, now)
            if stop is not None:
                return self.refused(stop[0], level=stop[1], effect=effect)
            if now >= effect.expires:
                return self.refused("expired", effect=effect)
            no = self._no_room(effect, stored=True)
            if no is not None:
                return self.refused(no[0], field=no[1], level=no[2], effect=effect)
            return self._decide(effect, now, held=True)
        except ClockUntrusted:
            return about("clock_untrusted", effect)

    # --------------------------------------------------------------------------------- using one

    def _admission(self, effect: Effect, sender: str, claim: object) -> Said | None:
        """Admit under the lock, or say why not (ADM-01)."""
        now = self.time()
        if effect.collected:
            return self.refused("collected", effect=effect)
        if effect.state == "admitted" and self.is_orphan(effect, now):
            self.call_unknown(effect, now)
            return about("outcome_unknown", effect)
        if effect.state != "permitted" or effect.permit_expires is None:
            return self.refused(why_not(effect.state), effect=effect)
        if now >= effect.permit_expires:
            self.move(effect, "expired", now)
            return about("expired", effect)
        stop = self.stopped(effect.task, now)
        if stop is not None:
            return self.refused(stop[0], level=stop[1], effect=effect)
        may, no = self._judge(effect, now, self.day(effect.issued))
        if not may:
            return self.refused(no[0], field=no[1], level=no[2], effect=effect)
        short = self.short(effect.task, effect.cost)
        if short is not None:
            return self.refused(short[0], field=short[1], level=short[2], effect=effect)
        effect.decisions.append(effect.facts)
        effect.sender, effect.claim, effect.deadline = sender, claim, now + effect.of.deadline
        self.move(effect, "admitted", now)
        return None

    def _usable(self, number: int, command: str) -> Effect | Said:
        """Return the effect that a command can use, or the no that needs no lock."""
        found = self.named(number)
        if isinstance(found, Said):
            return found
        if found.state in SETTLED and command == "commit":
            return self.standing(found)
        if found.state in SETTLED + UNUSED:
            return self.refused(why_not(found.state), effect=found)
        if found.of.by_host != (command == "admit") and found.state in UNRESOLVED:
            return self.refused(why_not(found.state), effect=found)
        if found.of.by_host != (command == "admit"):
            return self.refused("unsupported", field=command, effect=found)
        return found

    def admit(self, number: int, claim: object) -> Story:
        """Admit for a host outside."""
        effect = self._usable(number, "admit")
        if isinstance(effect, Said):
            return effect
        yield "sinks_probed"
        try:
            no = self._admission(effect, "", claim)
        except ClockUntrusted:
            return about("clock_untrusted", effect)
        if no is not None:
            return no
        if self._has_ended(effect):
            self._settle(effect, *NOT_SENT)
            return about("prepare_again", effect)
        return about("admitted", effect, more={"deadline": effect.deadline})

    def _has_ended(self, effect: Effect) -> bool:
        """Look once more, after the sinks and before anything is sent (ADM-05)."""
        wall = self.clock.wall
        in_time = wall < min(effect.deadline or 0, effect.permit_expires or 0)
        return effect.state != "admitted" or not in_time or self.stopped(effect.task, wall) is not None

    def _settle(
        self, effect: Effect, state: str, charged: Mapping[str, int], evidence: tuple[str, str]
    ) -> Said | None:
        """Record an outcome on the winner's word; a unit that nobody measured costs its maximum (BUD-03, REP-06)."""
        now = self.time()
        if effect.state not in UNRESOLVED:
            return self.refused(why_not(effect.state), effect=effect)
        late = effect.state == "unknown" or now >= (effect.deadline or 0)
        if effect.state == state:
            # That the winner's own sending is over is kept, once; a host's word that it does not know says nothing new.
            if evidence[0] == "host_claim":
                return self.refused("outcome_unknown", effect=effect)
            effect.evidence.append((*evidence, state, late))
            self.record(now, "effect.reported")
            return None
        effect.evidence.append((*evidence, state, late))
        if state != "unknown":
            effect.charges = {} if state == "no_effect" else {**effect.cost, **charged}
        self.move(effect, state, now)
        return None

    def report(
        self, number: int, claim: object, *, succeeded: bool, cost: Mapping[str, int] | None = None
    ) -> Said:
        """Take a host's word: at least the maximum, or unknown (REC-07)."""
        effect = self.named(number)
        if isinstance(effect, Said):
            return effect
        if cost is not None and min(cost.values(), default=0) < 0:
            return self.refused("malformed", field=min(cost), effect=effect)
        if cost is not None and not set(cost) <= set(UNITS):
            return self.refused("unknown_reference", field="cost", effect=effect)
        if effect.claim is None or effect.claim != claim:
            return self.refused("forbidden", field="claim", effect=effect)
        most = {unit: max(amount, effect.cost.get(unit, 0)) for unit, amount in (cost or {}).items()}
        state = "succeeded" if succeeded else "unknown"
        try:
            no = self._settle(effect, state, most, ("host_claim", "host:report"))
        except ClockUntrusted:
            return about("clock_untrusted", effect)
        return no or self.standing(effect)

    def commit(self, number: int, sender: str, outcome: Outcome, *, unrecorded: bool = False) -> Story:
        """Admit, send once, and record what came back; `unrecorded` says that the ledger failed at the end."""
        effect = self._usable(number, "commit")
        if isinstance(effect, Said):
            return effect
        yield "sinks_probed"
        try:
            no = self._admission(effect, sender, sender)
        except ClockUntrusted:
            return about("clock_untrusted", effect)
        if no is not None:
            return no
        yield "admission_acknowledged"
        ended = self._has_ended(effect)
        if not ended and outcome.word not in {"lost", "not_sent"}:
            yield "answered"
        state, charged, evidence = NOT_SENT if ended else proven(outcome)
        try:
            if not unrecorded:
                self._settle(effect, state, charged, evidence)
        except ClockUntrusted:
            unrecorded = True
        if unrecorded:  # it may have been sent, and nobody could write that down
            return Said(code="outcome_unknown", effect=effect.number, state="admitted")
        if ended:
            return about("prepare_again", effect)
        if outcome.word == "not_sent":
            return about("not_dispatched", effect)
        return about("outcome_unknown" if effect.state == "unknown" else effect.state, effect)

    # ------------------------------------------------------------------------------------ looking

    def _swept(self) -> bool:
        """Sweep if the clock lets us; reading goes on either way (LED-04)."""
        try:
            self.sweep()
        except ClockUntrusted:
            return False
        return True

    def show(self, number: int) -> Said:
        """Show an effect, or what stays of it."""
        swept = self._swept()
        if not 0 <= number < len(self.effects):
            return self.refused("not_found")
        effect = self.effects[number]
        if effect.collected:
            return about("found", effect)
        held = effect.cost if effect.deadline is not None else {}
        record = {
            "task": effect.task.name,
            "permit": effect.permit_expires,
            "deadline": effect.deadline,
            "reserved": {
                (level.name, unit, amount) for level in effect.task.path for unit, amount in held.items()
            },
            "evidence": effect.evidence,
            "swept": swept,
        }
        return about("found", effect, more=record)

    def task_show(self, name: str) -> Said:
        """Show a task."""
        self._swept()
        if name not in self.tasks:
            return self.refused("unknown_reference", field="task")
        return Said(code="found", more={"task": self.view(self.tasks[name])})


def why_not(state: str) -> str:
    """Return the no to whoever would admit, or settle, from a state."""
    if state in NOT_YET or state == "permitted":
        return "not_permitted_yet"
    if state in {*SETTLED, "admitted"}:
        return "already_consumed"
    return "outcome_unknown" if state == "unknown" else state


def proven(outcome: Outcome) -> Proof:
    """Return what an answer proves, and no more (REP-06)."""
    charged = dict(outcome.charged or {})
    if outcome.word == "lost":
        return "unknown", {}, ("none", "exception:ConnectionResetError")
    if outcome.word == "not_sent":
        return NOT_SENT
    if not all(type(amount) is int and amount >= 0 for amount in charged.values()):
        heard = outcome.word in {"succeeded", "failed", "accepted", "partial"}
        return "unknown", {}, ("service" if heard else "none", "charge_not_whole")
    if outcome.word == "no_effect" and any(charged.values()):
        return "unknown", {}, ("service", "memory")
    if outcome.word == "nothing":
        return "unknown", {}, ("none", "memory")
    return outcome.word, {unit: int(str(amount)) for unit, amount in charged.items()}, ("service", "memory")
