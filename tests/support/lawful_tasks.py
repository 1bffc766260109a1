"""What the oracle of `tests.support.lawful` keeps of tasks: their ends, ceilings and slots, told by spans alone."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

MOVES: Final = {"task.frozen": "frozen", "task.thawed": "open", "task.closed": "closed"}


@dataclass(kw_only=True)
class TaskSeen:
    """What the trail says of one task so far.

    Attributes:
        ceilings: by unit; None is what the levels above have.
        slots: what it names, as `class:refund`, and how many admissions of it; None is what the levels above have.
    """

    name: str
    parent: str | None
    subject: str
    actors: frozenset[str]
    expires_ms: int
    ceilings: dict[str, int | None]
    slots: dict[str, int | None]
    state: str = "open"
    overrun: bool = False
    held: Counter[str] = field(default_factory=Counter)
    settled: Counter[str] = field(default_factory=Counter)
    taken: Counter[str] = field(default_factory=Counter)

    def change(self, name: str, said: Mapping[str, Any]) -> bool:
        """Follow a span about this task; return False for one that cannot follow on what was before."""
        if self.state == "closed":
            return False
        if name in MOVES:
            self.state = MOVES[name]
        elif name == "task.granted":
            for unit, amount in _pairs(said["permit.granted"]).items():
                self.ceilings[unit] = (self.ceilings.get(unit, 0) or 0) + (amount or 0)
        elif name == "task.lowered":
            self.ceilings.update(_pairs(said["permit.lowered"]))
        else:
            return False
        return True

    def against(self, at_ms: int) -> list[str]:
        """Return what speaks against using it at an instant."""
        found = [] if self.state == "open" else [f"the task {self.name}, which is {self.state}"]
        return found + ([f"the task {self.name}, which is over"] if at_ms >= self.expires_ms else [])

    def take(self, prepared: Mapping[str, Any]) -> list[str]:
        """Take the slots of an effect as its permit does; return what it may not have."""
        wrongs = []
        named = {name.partition(":")[0] for name in self.slots}
        for name in _names(prepared):
            if name.partition(":")[0] not in named:
                continue
            if name not in self.slots:
                wrongs.append(f"the task {self.name} does not name {name}")
                continue
            self.taken[name] += 1
            most = self.slots[name]
            if most is not None and self.taken[name] > most:
                wrongs.append(f"{self.taken[name]} of {most} slots of {name} in {self.name}")
        return wrongs

    def give_back(self, prepared: Mapping[str, Any]) -> None:
        """Give the slots of an effect back."""
        self.taken.subtract(name for name in _names(prepared) if name in self.slots)

    def hold(self, cost: Mapping[str, int]) -> list[str]:
        """Reserve a cost as an admission does; return what is above a ceiling then."""
        wrongs = [f"the task {self.name} has an overrun"] if self.overrun else []
        for unit, amount in cost.items():
            self.held[unit] += amount
            ceiling = self.ceilings.get(unit, 0)
            if ceiling is not None and self.held[unit] + self.settled[unit] > ceiling:
                held, settled = self.held[unit], self.settled[unit]
                wrongs.append(f"{held} held and {settled} settled {unit} above {ceiling} in {self.name}")
        return wrongs

    def settle(self, cost: Mapping[str, int], charged: Mapping[str, int]) -> None:
        """Release what was held, and keep what was charged."""
        self.held.subtract(cost)
        self.settled.update(charged)
        self.overrun = self.overrun or any(amount > cost.get(unit, 0) for unit, amount in charged.items())


def opened_task(said: Mapping[str, Any]) -> TaskSeen:
    """Return a task as the span that opened it tells it."""
    return TaskSeen(
        name=said["permit.task.name"],
        parent=said.get("permit.parent.id"),
        subject=said["permit.subject"],
        actors=frozenset(said.get("permit.actors") or ()),
        expires_ms=said["permit.expires_ms"],
        ceilings=_pairs(said["permit.ceiling"]),
        slots=_pairs(said.get("permit.scope") or ()),
    )


def _pairs(lines: Any) -> dict[str, int | None]:
    pairs = [line.rpartition("=") for line in lines]
    return {name: None if amount == "inherit" else int(amount) for name, _, amount in pairs}


def _names(prepared: Mapping[str, Any]) -> tuple[str, str, str]:
    said = {name.removeprefix("permit."): value for name, value in prepared.items()}
    resource = f"resource:{said['resource.type']}:{said['resource.id']}"
    return f"class:{said['class']}", f"operation:{said['operation']}", resource
