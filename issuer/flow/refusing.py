"""How a step says no before a transaction could: an exception that carries the refusal to the command's edge.

Inside a transaction a refusal is returned in the verdict. Outside, preparation has many places to stop; each raises
this, and `issuer.commands` turns it into a recorded refusal and an answer in one place.
A name that stands for nothing may get a question after its no ("did you mean"). Rules: SEC-04 (near misses are for
owners), EFF-08 (an effect's reference never gets one); the question is for the answer alone and reaches no span.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import islice
from typing import Final

from issuer.house import House
from issuer.likeness import did_you_mean
from ledger.errors import Broken
from ledger.model import Effect, Tombstone, Unit
from ledger.port import View
from ledger.refusals import Refusal, RefusalCode
from ledger.transitions import AttributeValue

NAMES_MAX: Final = 1000
"""Names compared at most, the first given: a no must not cost more the longer a ledger lives."""


class RefusedError(Exception):
    """An expected no on the way to a transaction.

    `say` replaces the code's sentence where one fits better; `hint` follows whichever sentence is said.
    """

    def __init__(
        self,
        code: RefusalCode,
        *,
        field: str | None = None,
        level: str | None = None,
        say: str = "",
        hint: str = "",
        tombstone: Tombstone | None = None,
        extra: Mapping[str, AttributeValue] | None = None,
    ) -> None:
        """Carry the refusal."""
        super().__init__(str(code))
        self.refusal = Refusal(code=code, field=field, level=level)
        self.say = say
        self.hint = hint
        self.tombstone = tombstone
        """What stays of the effect that this is about, where it was collected."""
        self.extra = {} if extra is None else extra
        """What the span of the no says besides, as keywords of `issuer.flow.spans.refused`."""


def collected_since(view: View, effect: Effect) -> Effect:
    """Return an effect that was there before the lock, as it ended: it was collected since, and is made anew by nobody.

    Raises:
        Broken: it is gone in some other way.
    """
    tombstone = view.tombstone(effect.effect_id)
    if tombstone is None:
        raise Broken("an effect that was read is gone")
    return replace(effect, state=tombstone.state)


def hint_of(house: House, wanted: object, known: Iterable[str]) -> str:
    """Return the question which of `known` was meant; empty where none is near or the caller may not learn it.

    In ordinary mode the caller is the account that owns the profile and can list every task. In any other mode it may
    be an agent of somebody else's, which could guess its way to names, so nobody is told one.
    """
    return did_you_mean(wanted, islice(known, NAMES_MAX)) if house.mode == "ordinary" else ""


def unknown_name(
    house: House, field: str, wanted: object, known: Iterable[str], *, say: str = ""
) -> RefusedError:
    """Return the no for a name that stands for nothing; `known` are the names that this caller may be told."""
    return RefusedError(
        RefusalCode.UNKNOWN_REFERENCE, field=field, say=say, hint=hint_of(house, wanted, known)
    )


def unknown_unit(house: House, field: str, unit: Unit) -> RefusedError:
    """Return the no for a unit that no operation costs; its form was checked, so it can be repeated.

    One currency is never offered for another: an amount that was meant in one would be allowed in the other.
    """
    whose = unit.partition(".")[0].casefold()
    known = [one for one in house.units if "." not in one or one.partition(".")[0].casefold() == whose]
    return unknown_name(house, field, unit, known, say=f"No operation costs {unit}.")
