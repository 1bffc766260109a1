"""How much room an issuer has left, as people and programs are told it (LED-02). It judges nothing."""

from dataclasses import dataclass
from typing import Final

from ledger.capacity import MEBIBYTE, Fill, Outlook


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """The fill of each bound, when the first is reached, and what is kept for outcomes on the disk."""

    fills: tuple[Fill, ...]
    outlook: Outlook | None
    has_ballast: bool
    free_bytes: int

    def as_json(self) -> dict[str, object]:
        """Return it as members of `stats`."""
        return {
            "fill": [
                {"what": fill.what, "used": fill.used, "bound": fill.bound, "percent": fill.percent}
                for fill in self.fills
            ],
            "full_in": None
            if self.outlook is None
            else {"what": self.outlook.what, "days": self.outlook.days},
            "ballast": self.has_ballast,
            "free_bytes": self.free_bytes,
        }

    def lines(self) -> list[str]:
        """Return it for people."""
        full = [f"{_WHAT[fill.what]} {fill.percent}% of {_size(fill)}" for fill in self.fills]
        ballast = "stands" if self.has_ballast else "is missing"
        return [
            f"  full: {', '.join(full)}",
            f"  full at this pace: {_when(self.outlook)}",
            f"  kept for outcomes: the ballast {ballast}, {self.free_bytes // MEBIBYTE} MiB are free",
        ]


_WHAT: Final = {"effects": "effects", "record_bytes": "records", "span_bytes": "spans"}


def _when(outlook: Outlook | None) -> str:
    if outlook is None:
        return "not in sight"
    days = "within a day" if outlook.days == 0 else f"in about {outlook.days} day{'s' * (outlook.days > 1)}"
    return f"{days}, by {_WHAT[outlook.what]}"


def _size(fill: Fill) -> str:
    return str(fill.bound) if fill.what == "effects" else f"{fill.bound // MEBIBYTE} MiB"
