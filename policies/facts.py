"""What is this request about? Typed, bounded facts that the core asserts, and their Cedar form. Pure.

Rules (POL-02): only what is listed here reaches a policy. Numbers are exact whole numbers within
+-(2^53 - 1), never booleans, floats or text (EFF-04). Resource attributes must be exactly those that the
catalogue declares, each of its kind: an absent one is refused here, because in Cedar it would make a forbid
be skipped. Units that a fact leaves out read 0; units nobody declared are refused. Counts of earlier
effects never include the one being decided: whoever counts leaves it out.

Not here: counting, time zones, and whether anything is allowed.
Next: `policies.ask` turns facts into what the engine is asked.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from types import MappingProxyType

from policies.directory import ActorFact, Directory, FactsRefused, PersonFact, require_name
from policies.schema import ACTS, EFFECT_TYPE, ISSUER_TYPE, UNBOUNDED

__all__ = [
    "UNBOUNDED",
    "ActFacts",
    "ActorFact",
    "ApprovalFacts",
    "ClockFact",
    "Directory",
    "Earlier",
    "EffectFact",
    "Facts",
    "FactsRefused",
    "Limits",
    "PersonFact",
    "TaskFact",
    "Usage",
    "cedar_datetime",
]

# A context set costs the engine some 3 microseconds an element: 200 recipients stay under a millisecond.
RECIPIENTS_MAX = 200
# As long as the largest record that the ledger keeps (LED-02).
STRING_BYTES_MAX = 64 * 1024
# All text of one request together: four such records, so that many long values cannot add up to seconds.
FACTS_BYTES_MAX = 256 * 1024
# Depth of a task tree (BUD-01). Closing a chain costs more than its length squared, 0.2 ms at 32.
TASKS_MAX = 32
# The last millisecond that a four-digit year can say (9999-12-31); Cedar's datetime has no fifth digit.
TIME_MS_MAX = 253_402_300_799_999
MINUTES_OF_DAY = 24 * 60
DAYS_OF_WEEK = 7


def require_whole(what: str, number: object, low: int, high: int) -> None:
    """Refuse what is not exactly an `int` (a bool is not) or lies outside low..high, both included."""
    if type(number) is not int:
        raise FactsRefused("type_error", f"{what} is not a whole number")
    if not low <= number <= high:
        raise FactsRefused("overflow", f"{what} is out of range")


def require_text(what: str, text: object) -> int:
    """Refuse what is not text or too long; return its size in UTF-8 bytes."""
    if type(text) is not str:
        raise FactsRefused("type_error", f"{what} is not text")
    try:
        size_bytes = len(text.encode())
    except UnicodeEncodeError:
        raise FactsRefused("type_error", f"{what} is not valid Unicode") from None
    if size_bytes > STRING_BYTES_MAX:
        raise FactsRefused("bad_facts", f"{what} is longer than {STRING_BYTES_MAX} bytes")
    return size_bytes


def cedar_datetime(at_ms: int) -> dict[str, object]:
    """Return an instant (UTC milliseconds, 0..TIME_MS_MAX) in the one form that every Cedar reader takes.

    Whole milliseconds and a literal `Z`: the engine rejects microseconds and `+00:00`.
    """
    seconds, millis = divmod(at_ms, 1000)
    text = datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    return {"__extn": {"fn": "datetime", "arg": f"{text}.{millis:03d}Z"}}


def _require_counts(record: object) -> None:
    for one in fields(record):  # type: ignore[arg-type]  # called by the three dataclasses below only
        require_whole(one.name, getattr(record, one.name), 0, UNBOUNDED)


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskFact:
    """One task of the chain. `name` is unique in a ledger and is what policies call it; depth 0 is a root.

    `expires_ms` is UTC milliseconds. `subject` is a person of the directory.
    """

    name: str
    task_id: str
    subject: str
    depth: int
    expires_ms: int

    def __post_init__(self) -> None:
        """Refuse malformed names, a depth outside 0..31 and an instant outside the calendar."""
        require_name("task", self.name)
        require_name("task id", self.task_id)
        require_name("person", self.subject)
        require_whole("depth", self.depth, 0, TASKS_MAX - 1)
        require_whole("expires_ms", self.expires_ms, 0, TIME_MS_MAX)


@dataclass(frozen=True, slots=True, kw_only=True)
class Earlier:
    """How many other effects with the same content key, and on the same resource, are in which state."""

    same_payload_pending: int = 0
    same_payload_unresolved: int = 0
    same_payload_succeeded: int = 0
    same_resource_pending: int = 0
    same_resource_unresolved: int = 0
    same_resource_succeeded: int = 0

    def __post_init__(self) -> None:
        """Refuse what is not a count."""
        _require_counts(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Automatic permits of the class so far: in this task, under this root, on this day of the owner."""

    task_permits: int = 0
    root_permits: int = 0
    day_permits: int = 0

    def __post_init__(self) -> None:
        """Refuse what is not a count."""
        _require_counts(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Declared bounds of the class, same names as `Usage`, and the longest lifetime in seconds."""

    task_permits: int = UNBOUNDED
    root_permits: int = UNBOUNDED
    day_permits: int = UNBOUNDED
    lifetime_s: int = UNBOUNDED

    def __post_init__(self) -> None:
        """Refuse what is not a count."""
        _require_counts(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockFact:
    """One instant (UTC milliseconds), and what the owner's wall shows then: minute and weekday, Monday 1."""

    now_ms: int
    minute_of_day: int
    weekday: int

    def __post_init__(self) -> None:
        """Refuse values outside the calendar."""
        require_whole("now_ms", self.now_ms, 0, TIME_MS_MAX)
        require_whole("minute_of_day", self.minute_of_day, 0, MINUTES_OF_DAY - 1)
        require_whole("weekday", self.weekday, 1, DAYS_OF_WEEK)


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """Everything that one decision may use. `tasks` runs from the leaf to the root."""

    actor: str
    subject: str
    operation: str
    action_class: str
    resource_type: str
    resource_id: str
    attributes: Mapping[str, str | int | bool]
    cost: Mapping[str, int]
    remaining: Mapping[str, int]
    recipients: tuple[str, ...]
    tasks: tuple[TaskFact, ...]
    earlier: Earlier
    usage: Usage
    limits: Limits
    clock: ClockFact

    def __post_init__(self) -> None:
        """Refuse malformed, oversized or contradictory facts; freeze the mappings.

        Raises:
            FactsRefused: with the reason word that the decision would carry.
        """
        for what in ("actor", "subject", "operation", "action_class", "resource_type"):
            require_name(what, getattr(self, what))
        total_bytes = require_text("resource_id", self.resource_id)
        if type(self.recipients) is not tuple or len(self.recipients) > RECIPIENTS_MAX:
            raise FactsRefused("bad_facts", f"more than {RECIPIENTS_MAX} recipients, or not a tuple")
        total_bytes += sum(require_text("a recipient", one) for one in self.recipients)
        for name, value in self.attributes.items():
            require_name("attribute", name)
            total_bytes += _require_value(name, value)
        if total_bytes > FACTS_BYTES_MAX:
            raise FactsRefused("bad_facts", f"more than {FACTS_BYTES_MAX} bytes of text in one request")
        self._require_units()
        self._require_chain()
        for what in ("attributes", "cost", "remaining"):
            object.__setattr__(self, what, MappingProxyType(dict(getattr(self, what))))

    def _require_units(self) -> None:
        """Costs are not negative (EFF-04); what remains may be, after an overrun (BUD-03)."""
        for mapping, low in ((self.cost, 0), (self.remaining, -UNBOUNDED)):
            for unit, amount in mapping.items():
                require_name("unit", unit)
                require_whole("an amount", amount, low, UNBOUNDED)

    def _require_chain(self) -> None:
        """A chain is not empty, has distinct names, and each parent is exactly one level up to depth 0."""
        depths = [task.depth for task in self.tasks]
        if type(self.tasks) is not tuple or not 0 < len(depths) <= TASKS_MAX:
            raise FactsRefused("bad_facts", f"a chain has 1 to {TASKS_MAX} tasks")
        if depths != list(range(len(depths) - 1, -1, -1)):
            raise FactsRefused("bad_facts", "a chain runs from the leaf to a root of depth 0")
        if len({task.name for task in self.tasks}) != len(self.tasks):
            raise FactsRefused("bad_facts", "a task stands twice in its own chain")


def _require_value(name: str, value: object) -> int:
    """Check one attribute value of any kind; return the bytes that its text takes."""
    if type(value) is bool:
        return 0
    if type(value) is int:
        require_whole(name, value, -UNBOUNDED, UNBOUNDED)
        return 0
    return require_text(name, value)


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalFacts:
    """May this person approve this effect, as a member of this group of approvers?"""

    person: str
    effect_id: str
    action_class: str
    subject: str
    actor: str
    approvers: str
    now_ms: int

    def __post_init__(self) -> None:
        """Refuse malformed names and an instant outside the calendar."""
        for what in ("person", "effect_id", "action_class", "subject", "actor", "approvers"):
            require_name(what, getattr(self, what))
        require_whole("now_ms", self.now_ms, 0, TIME_MS_MAX)


@dataclass(frozen=True, slots=True, kw_only=True)
class EffectFact:
    """An effect that somebody wants to act on: its place, where it stands, and whether it is the caller's own."""

    effect_id: str
    action_class: str
    operation: str
    subject: str
    actor: str
    state: str
    own: bool

    def __post_init__(self) -> None:
        """Refuse malformed names."""
        for what in ("effect_id", "action_class", "operation", "subject", "actor", "state"):
            require_name(what, getattr(self, what))
        if type(self.own) is not bool:
            raise FactsRefused("type_error", "whose effect it is has to be true or false")


@dataclass(frozen=True, slots=True, kw_only=True)
class ActFacts:
    """May this person do this, with this command, to this effect; or, without an effect, to the issuer? (POL-01)."""

    person: str
    action: str
    command: str
    now_ms: int
    effect: EffectFact | None = None

    def __post_init__(self) -> None:
        """Refuse malformed names, an instant outside the calendar, and an act on what it does not apply to."""
        require_name("person", self.person)
        require_name("command", self.command)
        require_whole("now_ms", self.now_ms, 0, TIME_MS_MAX)
        kind = ISSUER_TYPE if self.effect is None else EFFECT_TYPE
        if kind not in ACTS.get(self.action, ()):
            raise FactsRefused("bad_facts", "an act on something that it does not apply to")
