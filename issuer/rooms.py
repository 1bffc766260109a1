"""Are the four rooms that get imported our own? Their names are common, and a foreign `audit` would be trusted blindly.

Rule: ADR 0001; each of the four is found beside this file, or nothing works. The question is answered without
importing any of them, and this module needs the standard library alone, so that it can be asked first.
Next: `issuer.surfaces.cli` refuses to work on a yes, and `issuer.selfcheck` tells it with the rest.
"""

import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOMS: Final = ("issuer", "policies", "audit", "ledger")
HOME: Final = Path(__file__).resolve().parents[1]
"""The folder that this copy of the rooms stands in."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignRoom:
    """A room's name that stands for something else here; `place` is where that is, empty where nothing is found."""

    name: str
    place: str


def _origin(name: str) -> str:
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError):  # a module without a specification is none of ours
        return ""
    return "" if spec is None or spec.origin is None else spec.origin


def foreign_rooms() -> tuple[ForeignRoom, ...]:
    """Return the rooms whose import would bring, or has brought, something else than our own."""
    found = [(name, _origin(name)) for name in ROOMS]
    return tuple(
        ForeignRoom(name=name, place=origin)
        for name, origin in found
        if not origin or Path(origin).resolve() != HOME / name / "__init__.py"
    )


def foreign_sentence(rooms: Sequence[ForeignRoom]) -> str:
    """Return the one sentence about foreign rooms (at least one)."""
    told = ", ".join(f"`{room.name}` is {room.place or 'nowhere'}" for room in rooms)
    return f"Foreign packages stand in the place of our own ({told}); nothing was done."


FOREIGN_NEXT: Final = (
    "Take that folder off PYTHONPATH and out of this environment: the issuer wants an environment of its own."
)
