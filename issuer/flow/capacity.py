"""Is there room for one more effect in its task: what the task names, its slots, its money, and the ledger's own space?

Rules: BUD-06 (what is unnamed is refused, and slots are held at every level), BUD-02, LED-02 (at capacity new effects
are refused; one task cannot fill the house), ADM-01 (an admission asks for space again). Asked under the lock, before a
permit is decided; the order is that of `ledger.refusals`.
"""

from issuer.house import House
from ledger.budgets import refuse_cost
from ledger.capacity import refuse_admission, refuse_new
from ledger.model import Effect, PathNode
from ledger.port import View
from ledger.refusals import Refusal, RefusalCode
from ledger.scope import refuse_scope, refuse_slots, slot_takes


def refuse_use(
    house: House, view: View, path: tuple[PathNode, ...], effect: Effect, *, stored: bool
) -> Refusal | None:
    """Refuse an effect that its task does not name, or that there is no slot, money or space for.

    `stored` says that the ledger has the effect already (it was held).
    """
    takes = slot_takes(path, effect)
    return (
        refuse_scope(path, effect)
        or refuse_slots(takes, {take.counter: view.counter(take.counter) for take in takes})
        or _refuse_unended(house, view, path, stored=stored)
        or refuse_cost(path, effect.cost)
        or refuse_new(view.holdings(), house.profile.ledger.capacity, stored=stored)
        or _refuse_disk(house)
    )


def refuse_space(house: House, view: View) -> Refusal | None:
    """Refuse an admission where the space that is left, in the ledger or on its disk, is for outcomes."""
    return refuse_admission(view.holdings(), house.profile.ledger.capacity) or _refuse_disk(house)


def restore_ballast(house: House) -> None:
    """Make the ballast again where it is missing and there is room; asked before the lock, since it takes a sync."""
    house.ballast.restore()


def _refuse_unended(house: House, view: View, path: tuple[PathNode, ...], *, stored: bool) -> Refusal | None:
    """Refuse where the task has as many effects that are not over as it may; a stored one is among them."""
    task = path[0].task
    bound = house.profile.ledger.capacity.unended_per_task_max + stored
    if view.unended(task.task_id, limit=bound) < bound:
        return None
    return Refusal(code=RefusalCode.TASK_FULL, level=task.name)


def _refuse_disk(house: House) -> Refusal | None:
    """Refuse where the ballast does not stand, or little is free beside it."""
    return None if house.ballast.is_ready else Refusal(code=RefusalCode.LEDGER_FULL, field="disk")
