"""What the model knows, and its sums: every total is added up anew from the effects, none is ever carried along.

No code of the product is used here: states, codes and span names are the plain words of its answers.
Next: `tests.model.reference` and `tests.model.reference_tasks`, the commands.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from dataclasses import field as default
from datetime import datetime
from typing import Final
from zoneinfo import ZoneInfo

from tests.model.terms import AMOUNT_MAX, CLASSES, OPERATIONS, TIMEZONE, UNITS, Class, Counts, Operation

PENDING: Final = ("prepared", "awaiting_approval", "permitted")
UNRESOLVED: Final = ("admitted", "unknown")
UNUSED: Final = ("denied", "expired")
SETTLED: Final = ("succeeded", "failed", "no_effect")
GIVES_BACK: Final = ("denied", "expired", "no_effect")
"""Only proof that nothing happened, and a permit that can no more be used, give back what issuing took (BUD-06)."""

BACKWARD_MS: Final = 2_000
FORWARD_MS: Final = 5 * 60_000
SILENCE_MS: Final = 400 * 24 * 3_600_000
KINDS: Final = ("class", "operation", "resource")

Scope = dict[str, dict[str, int | None] | None]
"""By kind: the names and their counts (None is `inherit`); None leaves the kind open."""


@dataclass(kw_only=True)
class Clock:
    """The wall, which anyone can set, and the time since the machine began, which nobody can."""

    wall: int
    since: int = 0
    boot: int = 0

    def passes(self, milliseconds: int) -> None:
        """Let time go by."""
        self.wall += milliseconds
        self.since += milliseconds


@dataclass(kw_only=True)
class Task:
    """One task; `accepted` is how much of its overrun counts as spent."""

    name: str
    parent: "Task | None"
    subject: str
    actors: tuple[str, ...]
    expires: int
    ceilings: dict[str, int | None]
    scope: Scope
    state: str = "open"
    accepted: dict[str, int] = default(default_factory=dict)

    @property
    def path(self) -> "list[Task]":
        """Itself and its ancestors, leaf first."""
        return [self, *(self.parent.path if self.parent else [])]

    @property
    def root(self) -> "Task":
        """The top of its tree."""
        return self.path[-1]


@dataclass(frozen=True, kw_only=True)
class Request:
    """What a caller asks for."""

    operation: str
    task: str
    actor: str
    order: str
    amount: int
    key: str
    subject: str | None = None


@dataclass(kw_only=True)
class Effect:
    """One effect: what was asked for, where it stands, and what is known of its end."""

    number: int
    task: Task
    asked: Request
    subject: str
    prepared: int
    expires: int
    state: str = "prepared"
    permit_expires: int | None = None
    issued: int = 0
    sender: str = ""
    claim: object = None
    deadline: int | None = None
    charges: dict[str, int] = default(default_factory=dict)
    evidence: list[tuple[str, str, str, bool]] = default(default_factory=list)
    facts: dict[str, object] = default(default_factory=dict)
    decisions: list[dict[str, object]] = default(default_factory=list)
    sequence: int = 0
    ended: int = 0
    collected: bool = False

    @property
    def of(self) -> Operation:
        """Its operation."""
        return OPERATIONS[self.asked.operation]

    @property
    def bounds(self) -> Class:
        """The bounds of its class."""
        return CLASSES[self.of.of_class]

    @property
    def cost(self) -> dict[str, int]:
        """Its maximum cost."""
        return self.of.cost(self.asked.amount)

    @property
    def uses(self) -> dict[str, str]:
        """What it uses, by kind."""
        resource = f"{self.of.resource_type}:{self.asked.order}"
        return {"class": self.of.of_class, "operation": self.asked.operation, "resource": resource}

    @property
    def content(self) -> tuple[str, ...]:
        """What makes it the same payload as another (POL-02)."""
        return (self.asked.operation, self.asked.order, str(self.asked.amount), self.subject)

    @property
    def counts(self) -> bool:
        """Whether what its permit took is taken still."""
        return self.permit_expires is not None and self.state not in GIVES_BACK

    @property
    def window_ends(self) -> int:
        """From when on nothing outside can refer to it."""
        return self.expires + self.of.deadline

    def over(self, unit: str) -> int:
        """Return by how much it cost more than was held."""
        return max(0, self.charges.get(unit, 0) - self.cost.get(unit, 0))


@dataclass(frozen=True, kw_only=True)
class Said:
    """A predicted answer; `effect` is a number, `more` what the command tells beside."""

    code: str
    field: str | None = None
    level: str | None = None
    effect: int | None = None
    state: str | None = None
    expires: int | None = None
    more: Mapping[str, object] = default(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Money:
    """One budget line as the sums give it."""

    ceiling: int | None
    reserved: int
    settled: int
    overrun: int

    @property
    def above(self) -> int:
        """By how much more is used than the ceiling."""
        return 0 if self.ceiling is None else max(0, self.reserved + self.settled - self.ceiling)

    @property
    def left(self) -> int:
        """What can still be reserved."""
        if self.overrun or self.above:
            return 0
        return AMOUNT_MAX if self.ceiling is None else self.ceiling - self.settled - self.reserved


class ClockUntrusted(Exception):  # noqa: N818 - the word of the answer
    """The clock cannot be believed, so nothing is written."""


class World:
    """Tasks, effects, the trail and the time."""

    def __init__(self, clock: Clock, sequence: int) -> None:
        self.clock = clock
        self.tasks: dict[str, Task] = {}
        self.effects: list[Effect] = []
        self.gone: set[str] = set()
        self.left_open = False
        """Whether a process ended with a claim of its own still open, and none has begun since."""
        self.sequence = sequence
        self.trail: list[str] = []
        """Names of spans since somebody last looked."""
        self._entry = (clock.wall, clock.since, clock.boot)

    # ------------------------------------------------------------------------------------- the time

    def time(self) -> int:
        """Return the instant of a transaction (PER-03)."""
        wall, since, boot = self._entry
        passed = self.clock.wall - wall
        if passed < -BACKWARD_MS:
            raise ClockUntrusted
        lived = self.clock.since - since
        if passed > (lived + FORWARD_MS if self.clock.boot == boot else SILENCE_MS):
            raise ClockUntrusted
        return max(self.clock.wall, wall)

    @property
    def trusts_the_clock(self) -> bool:
        """Whether a transaction could begin now."""
        try:
            self.time()
        except ClockUntrusted:
            return False
        return True

    def record(self, now: int, *spans: str) -> None:
        """Commit: each transition is a span, and the clock of the last entry is this one's."""
        self.trail += spans
        self.sequence += len(spans)
        self._entry = (now, self.clock.since, self.clock.boot)

    def refused(
        self, code: str, *, field: str | None = None, level: str | None = None, effect: Effect | None = None
    ) -> Said:
        """Put a no on record; where the clock is not believed that is the no, and nothing is on record."""
        try:
            self.record(self.time(), "refused")
        except ClockUntrusted:
            return about("clock_untrusted", None if effect is not None and effect.collected else effect)
        return about(code, effect, field=field, level=level)

    def move(self, effect: Effect, state: str, now: int) -> None:
        """Move an effect, with its span."""
        self.record(now, f"effect.{state}")
        effect.state, effect.sequence, effect.ended = state, self.sequence, now

    def day(self, instant: int) -> str:
        """Return the owner's calendar date."""
        return datetime.fromtimestamp(instant / 1000, ZoneInfo(TIMEZONE)).date().isoformat()

    # ------------------------------------------------------------------------------------- the sums

    def below(self, task: Task) -> list[Effect]:
        """Return the effects of a task and of all below it."""
        return [effect for effect in self.effects if task in effect.task.path]

    def money(self, task: Task, unit: str) -> Money:
        """Add up one budget line."""
        effects = self.below(task)
        accepted = task.accepted.get(unit, 0)
        held = sum(effect.cost.get(unit, 0) for effect in effects if effect.state in UNRESOLVED)
        over = sum(effect.over(unit) for effect in effects)
        charged = sum(effect.charges.get(unit, 0) for effect in effects)
        return Money(
            ceiling=task.ceilings.get(unit, 0),
            reserved=held,
            settled=charged - over + accepted,
            overrun=over - accepted,
        )

    def lines(self, task: Task) -> set[str]:
        """Return the units that have a line: those with a ceiling, and those that were ever held or charged."""
        used = [effect for effect in self.below(task) if effect.deadline is not None]
        return {*task.ceilings, *(unit for effect in used for unit in (*effect.cost, *effect.charges))}

    def slots_used(self, task: Task, kind: str, name: str) -> int:
        """Return how many admissions of a name are taken at a level."""
        return sum(effect.counts and effect.uses[kind] == name for effect in self.below(task))

    def permits(self, of_class: str, but: Effect, where: Callable[[Effect], bool]) -> list[Effect]:
        """Return the effects whose permits count in a class, `but` one."""
        return [
            effect
            for effect in self.effects
            if effect is not but and effect.counts and effect.of.of_class == of_class and where(effect)
        ]

    def earlier(self, but: Effect) -> tuple[Counts, Counts]:
        """Count the other effects with the same payload, and on the same resource (POL-02)."""
        others = [effect for effect in self.effects if effect is not but]
        same = [effect for effect in others if effect.content == but.content]
        there = [effect for effect in others if effect.uses["resource"] == but.uses["resource"]]
        return counted(same), counted(there)

    def remaining(self, task: Task) -> dict[str, int]:
        """Return what the whole line can still bear of each unit."""
        return {unit: min(self.money(level, unit).left for level in task.path) for unit in UNITS}

    def retained(self) -> list[Effect]:
        """Return the effects with their whole record."""
        return [effect for effect in self.effects if not effect.collected]

    # ------------------------------------------------------------------------------------- the noes

    def stopped(self, task: Task, now: int) -> tuple[str, str] | None:
        """Return why a task admits nothing, and where: the lowest level speaks first (BUD-05)."""
        for level in task.path:
            if level.state != "open":
                return f"task_{level.state}", level.name
            if now >= level.expires:
                return "task_expired", level.name
        return None

    def short(self, task: Task, cost: Mapping[str, int]) -> tuple[str, str, str] | None:
        """Return why the money does not suffice, the unit and the level (BUD-02, BUD-03)."""
        for level in task.path:
            for unit, amount in sorted(cost.items()):
                line = self.money(level, unit)
                if line.overrun:
                    return "budget_overrun", unit, level.name
                if line.above or amount > line.left:
                    return "budget_exceeded", unit, level.name
        return None


def counted(effects: Iterable[Effect]) -> Counts:
    """Count effects by where they stand."""
    states = [effect.state for effect in effects]
    return Counts(
        pending=sum(state in PENDING for state in states),
        unresolved=sum(state in UNRESOLVED for state in states),
        succeeded=sum(state == "succeeded" for state in states),
    )


def about(
    code: str,
    effect: Effect | None,
    *,
    field: str | None = None,
    level: str | None = None,
    more: Mapping[str, object] | None = None,
) -> Said:
    """Return an answer about an effect as it stands now, or about none."""
    if effect is None:
        return Said(code=code, field=field, level=level, more=more or {})
    return Said(
        code=code, field=field, level=level, effect=effect.number, state=effect.state, more=more or {}
    )
