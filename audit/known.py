"""Values that were looked at before: the same caller, task and policies stand in span after span.

Decides nothing itself: what was found in order under an attribute, with this exact type and these characters, need not
be searched and matched again (AUD-07, SEC-01). Nothing gets in but what passed every look in the same process.

1. Only texts and short lists of texts of exactly the built-in types: True equals 1 and a subclass may call itself equal
   to anything, so neither is kept, and neither is asked for.
2. A text alone and a list of that text are two values.
3. It holds at most so many, each of bounded size, and starts again when it is full.

Next: `audit.recorder` asks it before `audit.redaction` and `audit.vocabulary`.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from ledger.transitions import AttributeValue

__all__ = ["KNOWN_MAX", "MEMBERS_MAX", "KnownValues"]

KNOWN_MAX: Final = 4096
"""Values kept: some thousand names of tasks, actors and resources; with the bounds of the vocabulary about 10 MiB."""

MEMBERS_MAX: Final = 4
"""Members of a list that is kept; a longer one is rare, and would take the room of many."""

_TEXT_ONLY: Final = frozenset({str})


def _is_short_list(value: AttributeValue) -> bool:
    """Say whether a value is a list of texts that may be kept, and so may be asked for."""
    return type(value) is tuple and len(value) <= MEMBERS_MAX and _TEXT_ONLY.issuperset(map(type, value))


class KnownValues:
    """Pairs of attribute and value that were in order. Any thread may use it: each step is one of a set's own."""

    __slots__ = ("_pairs",)

    def __init__(self) -> None:
        """Know nothing yet."""
        self._pairs: set[tuple[str, AttributeValue]] = set()

    def __len__(self) -> int:
        return len(self._pairs)

    def fresh(self, attributes: Mapping[str, AttributeValue]) -> dict[str, AttributeValue]:
        """Return the attributes whose values are not known, or are of a kind that never is."""
        pairs = self._pairs
        return {
            name: value
            for name, value in attributes.items()
            if not (type(value) is str or _is_short_list(value)) or (name, value) not in pairs
        }

    def learn(self, attributes: Iterable[tuple[str, AttributeValue]]) -> None:
        """Keep values that passed every look. To call this with others is to let them pass unseen."""
        kept = [pair for pair in attributes if type(pair[1]) is str or _is_short_list(pair[1])]
        if len(self._pairs) + len(kept) > KNOWN_MAX:
            self._pairs = set()
        self._pairs.update(kept[:KNOWN_MAX])
