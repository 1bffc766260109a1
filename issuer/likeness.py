"""Which name may have been meant: one measure of likeness, for profiles, requests and options alike.

It decides nothing about who may learn a name: a caller of it gives only candidates that may be told (SEC-04).
Next: `issuer.flow.refusing` says which those are for a request; `issuer.profile.findings` uses it for profiles. Pure.
"""

import difflib
from collections.abc import Iterable
from typing import Final

__all__ = ["did_you_mean", "nearest"]

_LIKENESS_MIN: Final = 0.6
"""difflib's own default: a transposition or one missing letter in a short name is still found."""


def nearest(wanted: object, candidates: Iterable[str]) -> str | None:
    """Return the candidate most like `wanted` (difflib ratio of at least 0.6), or None; None for what is no text."""
    if type(wanted) is not str:
        return None
    found = difflib.get_close_matches(wanted[:200], list(candidates), n=1, cutoff=_LIKENESS_MIN)
    return found[0] if found else None


def did_you_mean(wanted: object, candidates: Iterable[str]) -> str:
    """Return the question that follows a no where some candidate is near, else an empty text."""
    found = nearest(wanted, candidates)
    return "" if found is None else f'Did you mean "{found}"?'
