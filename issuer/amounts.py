"""Money and counts as people write them, on the terminal and in a notice.

A statement writes them by itself (`issuer.approving.rendering`): an approver's own tool could be that package alone.
"""

from typing import Final

__all__ = ["amount_text"]

_CENT: Final = ".cent"


def amount_text(unit: str, amount: int) -> str:
    """Return an amount for people: `900.00 EUR` for whole cents, else `3 publish`. `amount` is 0 or more."""
    if unit.endswith(_CENT):
        return f"{amount // 100}.{amount % 100:02d} {unit.removesuffix(_CENT)}"
    return f"{amount} {unit}"
