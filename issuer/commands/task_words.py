"""Sentences about tasks: what was opened without a budget, which task may have been meant, what still is blocked.

Rules: BUD-01 (a unit without a ceiling is zero, so the refusal would come later and at another's desk), SUR-05, SEC-04.
The first is a warning and no refusal: a task may be opened first and get its budget when its owner knows it.
Next: `issuer.commands.tasks` puts the sentences into its answers.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from issuer import answering
from issuer.flow.refusing import hint_of
from issuer.house import House
from issuer.wire import Answer
from ledger.model import Unit
from ledger.refusals import Refusal, RefusalCode

__all__ = ["Blocked", "accepted_say", "opened_say", "refused", "task_hint", "thawed_say", "wider_say"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Blocked:
    """One budget line that admits nothing: an overrun stands at it, or more is used than its ceiling (BUD-03)."""

    task: str
    unit: Unit
    overrun: int
    above: int

    @property
    def command(self) -> str:
        """What to type next; an amount that is for the owner to choose is left open."""
        if self.overrun:
            return f"issuer task accept-overrun {self.task} --unit {self.unit}"
        return f"issuer task grant {self.task} --budget {self.unit}=AMOUNT"

    def as_json(self) -> dict[str, object]:
        """Return the line as the answer tells it."""
        return {
            "task": self.task,
            "unit": str(self.unit),
            "overrun": self.overrun,
            "above": self.above,
            "command": self.command,
        }


def accepted_say(name: str, blocked: Sequence[Blocked]) -> str:
    """Return the sentence for an overrun that was accepted at `name`; `blocked` is what still is in its line."""
    said = f"The overrun at {name} counts as spent."
    if not blocked:
        return said
    rows = [
        f"{row.task} ({row.overrun} {row.unit} overrun): `{row.command}`"
        if row.overrun
        else f"{row.task} ({row.above} {row.unit} over its ceiling): `{row.command}`, with more than that"
        for row in blocked
    ]
    return f"{said} Still blocked: {'; '.join(rows)}."


def thawed_say(stopped: Refusal) -> str:
    """Return the sentence for a task that was thawed and is stopped all the same."""
    why = str(stopped.code).removeprefix("task_")
    return f"The task is thawed, and still admits nothing: {stopped.level} is {why}."


def opened_say(name: str, ceilings: Mapping[Unit, int | None]) -> str:
    """Return the sentence for a task opened with `ceilings` (None is `inherit`); empty where the code's own is enough.

    `name` is a checked task name; the command that is shown can be typed as it stands but for unit and amount.
    """
    if any(ceiling != 0 for ceiling in ceilings.values()):
        return ""
    return (
        "The task is open, but it has no budget: whatever costs something in it will be refused. "
        f"Add to it with `issuer task grant {name} --budget UNIT=AMOUNT`."
    )


def task_hint(house: House, wanted: str | None) -> str:
    """Return the question which task was meant, newest first: for those who manage tasks and could list them all."""
    tasks = house.ledger.read(lambda view: view.tasks())
    return hint_of(house, wanted, (task.name for task in reversed(tasks)))


def wider_say(refusal: Refusal) -> str:
    """Return the sentence where a child would be wider than a level above it (BUD-01); empty for any other no."""
    if refusal.code is not RefusalCode.FORBIDDEN:
        return ""
    return (
        f"A task is never wider than those above it, and {refusal.level} does not have that {refusal.field}."
    )


def refused(house: House, refusal: Refusal, wanted: str | None, *, say: str = "") -> Answer:
    """Return the answer of a no from a transaction; `wanted` is the task that was named and may not be there."""
    hint = ""
    if refusal.code is RefusalCode.UNKNOWN_REFERENCE and refusal.field in {"task", "parent"}:
        hint = task_hint(house, wanted)
    return answering.refused(house, refusal, say=say, hint=hint)
