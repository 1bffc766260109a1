"""What the development cases look at from outside: budgets at every level, the trail, the command line.

`books` and `trail` read what is on record; `command` starts the program itself, as a person or script would.
Nothing here decides what is right.
"""

import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from audit import TimelineEntry, timeline
from issuer import Issuer
from issuer.clock import now_ms
from issuer.house import House
from ledger.model import EffectId, InstantMs
from ledger.port import View
from ledger.states import EffectState
from tests.support.issuers import Made, open_task

HOUSE = Path(__file__).resolve().parents[2]
PATIENCE_S = 60.0
LEVELS = ("t1", "org")
NEVER_TWICE = """
@id("never-twice") @say("This was done before, or its outcome is still open. Do not try again.")
forbid (principal, action in Action::"permit", resource)
unless { context.earlier.same_payload_pending == 0 && context.earlier.same_payload_unresolved == 0 &&
  context.earlier.same_payload_succeeded == 0 };
"""


@dataclass(frozen=True, kw_only=True)
class Books:
    """One budget line: what is held, what is charged, and what was charged above what was held."""

    reserved: int
    settled: int
    overrun: int = 0


NOTHING = Books(reserved=0, settled=0)


def books(issuer: Issuer, *tasks: str, unit: str = "USD.cent") -> dict[str, Books]:
    """Return the budget lines of some tasks; a task that never had one shows zeroes."""

    def look(view: View) -> dict[str, Books]:
        found: dict[str, Books] = {}
        for name in tasks or LEVELS:
            task = view.task_named(name)
            assert task is not None, name
            line = {str(one): each for one, each in view.budget(task.task_id).items()}.get(unit)
            found[name] = (
                NOTHING
                if line is None
                else Books(reserved=line.reserved, settled=line.settled, overrun=line.overrun)
            )
        return found

    return issuer._house.ledger.read(look)


def all_at(*tasks: str, reserved: int = 0, settled: int = 0, overrun: int = 0) -> dict[str, Books]:
    """Return what `books` says where every one of `tasks` (`LEVELS` where none is named) has the same line."""
    return dict.fromkeys(tasks or LEVELS, Books(reserved=reserved, settled=settled, overrun=overrun))


def held_by(issuer: Issuer, effect: str) -> dict[str, int]:
    """Return what an effect's admission reserved, by task."""

    def look(view: View) -> dict[str, int]:
        held: dict[str, int] = {}
        for (task_id, _unit), amount in view.reserved(EffectId(effect)).items():
            task = view.task(task_id)
            assert task is not None
            held[task.name] = amount
        return held

    return issuer._house.ledger.read(look)


def effect_ids(issuer: Issuer, *states: EffectState) -> list[str]:
    """Return the ids of the effects in `states` (all where none is named), oldest first."""
    return [one.effect_id for one in issuer._house.ledger.read(lambda view: view.effects(states=states))]


def state_of(issuer: Issuer, effect: str) -> str:
    """Return the state on record of one effect."""
    found = issuer._house.ledger.read(lambda view: view.effect(EffectId(effect)))
    assert found is not None
    return str(found.state)


def length(issuer: Issuer) -> int:
    """Return how many spans the trail has."""
    return issuer._house.ledger.read(lambda view: view.head().sequence)


def trail(issuer: Issuer, after: int = 0) -> tuple[TimelineEntry, ...]:
    """Return the spans with a larger sequence, whatever story they belong to."""

    def look(view: View) -> tuple[TimelineEntry, ...]:
        stories = dict.fromkeys(row.story for row in view.spans_after(after, limit=100_000))
        entries = [entry for story in stories for entry in timeline(view, story) if entry.sequence > after]
        return tuple(sorted(entries, key=lambda entry: entry.sequence))

    return issuer._house.ledger.read(look)


def refusals(issuer: Issuer, after: int = 0) -> list[tuple[object, object, object]]:
    """Return code, field and level of each refusal's span."""
    names = ("permit.refusal", "permit.refusal.field", "permit.refusal.level")
    return [
        tuple(entry.attributes.get(name) for name in names)  # type: ignore[misc]  # three names, three values
        for entry in trail(issuer, after)
        if "permit.refusal" in entry.attributes
    ]


def rebuilt(issuer: Issuer, **changes: object) -> Issuer:
    """Return the same open issuer with parts of its house exchanged; close the original only."""
    house: House = replace(issuer._house, **changes)  # type: ignore[arg-type]  # a test names parts of the house
    return Issuer(house, issuer._caller, lambda: house)


def small_tree(issuer: Issuer, name: str, *, root: int = 10_000, task: int = 1_000) -> tuple[str, str]:
    """Open a root and a task below it for one test among others on the same issuer; return them leaf first."""
    actors = ["agent-7", "agent-8"]
    open_task(issuer, name, budget={"USD.cent": root}, subject="u-ana", actors=actors)
    open_task(issuer, f"{name}.t", parent=name, budget={"USD.cent": task})
    return f"{name}.t", name


class Clock:
    """The real time, moved by a test."""

    def __init__(self) -> None:
        self.ahead_ms = 0

    def __call__(self) -> InstantMs:
        """Return the instant."""
        return InstantMs(now_ms() + self.ahead_ms)


@dataclass(frozen=True, kw_only=True)
class Ran:
    """What the program said: its exit code, and the one JSON object on its standard output."""

    exit: int
    answer: Mapping[str, object]


PROGRAM = (sys.executable, "-c", "from issuer.surfaces.cli.main import main; main()")


def command(made: Made, *arguments: str, stdin: bytes = b"") -> Ran:
    """Run the program with `--json` on an issuer, in a process of its own."""
    done = subprocess.run(
        [*PROGRAM, "--json", "--profile", str(made.profile), *arguments],
        input=stdin,
        capture_output=True,
        cwd=HOUSE,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.stderr == b"", done.stderr
    (line,) = done.stdout.splitlines()
    return Ran(exit=done.returncode, answer=json.loads(line))
