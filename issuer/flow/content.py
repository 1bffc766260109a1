"""Protected content goes when the effect that it belongs to is over (LED-03, design section 5).

The ledger commits first that an effect is over; its content is erased after that. A process that ends in between
leaves a file to which no living effect refers, and a sweep removes it. Nothing here can lose what is still needed: what
may yet be admitted, and what is unknown, keeps its content.
Nothing fails for it either: an effect is over whether or not its file could be removed just now.
"""

from collections.abc import Iterable
from contextlib import suppress
from typing import Final

from issuer.house import House
from ledger.errors import Fault
from ledger.model import Effect
from ledger.states import PENDING, UNRESOLVED

SWEPT_AGE_MS: Final = 3600 * 1000
"""An hour: the longest that a preparation could stand still between its content and its entry in the ledger."""

LIVING: Final = tuple(sorted(PENDING | UNRESOLVED))
"""The states in which content may still be needed."""


def erase_content(house: House, effects: Iterable[Effect]) -> None:
    """Remove the protected content of effects that are over."""
    for effect in effects:
        if effect.protected:
            with suppress(Fault):
                house.protected.erase(effect.effect_id, durable=False)


def sweep_content(house: House) -> int:
    """Remove what no living effect refers to and is old enough; return how many files went.

    Raises:
        Fault: ledger or protected store cannot be read.
    """
    effects = house.ledger.read(lambda view: view.effects(states=LIVING))
    known = [effect.effect_id for effect in effects if effect.protected]
    return house.protected.sweep(known, now_ms=house.now(), age_ms=SWEPT_AGE_MS)
