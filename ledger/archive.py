"""What leaves a ledger when its trail is archived, and what stays of it (AUD-08).

Rules: AUD-08 (a checkpointed prefix is sealed into a file, and what proofs need is kept), LED-06 (a span that is gone
without having been archived is found), AUD-09 (changes of authority never leave). The trail of what lives stays whole,
and so does every span that a row names or that a sum is added up from: that an effect was admitted, and what came of
it. Of a span that left, its place and its leaf stay. Which ones left is told by the archive's own span, as one digest.
Pure. Next: `ledger.sqlite.archive_rows` finds and takes them away; `ledger.sqlite.check_archived` holds them against
the trail.
"""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from ledger.transitions import TransitionName

LOOKS_LEAVE: Final = frozenset(
    {
        *(TransitionName.REFUSED, TransitionName.NOISE, TransitionName.OBSERVED),
        *(TransitionName.AUDIT_EXPORTED, TransitionName.CHECKPOINT_SIGNED),
    }
)
"""Refusals, looks and checkpoints: no row hangs on them. The last checkpoint stays."""

EFFECTS_LEAVE: Final = frozenset(
    {
        *(TransitionName.EFFECT_PREPARED, TransitionName.EFFECT_PERMITTED, TransitionName.EFFECT_DENIED),
        *(TransitionName.EFFECT_AWAITING_APPROVAL, TransitionName.EFFECT_APPROVED),
        *(TransitionName.EFFECT_DECLINED, TransitionName.EFFECT_EXPIRED, TransitionName.EFFECT_WITHDRAWN),
        *(TransitionName.EFFECT_REVOKED, TransitionName.EFFECT_REVOKED_LATE, TransitionName.EFFECT_REPORTED),
        *(TransitionName.EFFECT_INSPECTING, TransitionName.EFFECT_INSPECTED, TransitionName.CONTENT_SHOWN),
        *(TransitionName.EFFECT_OBLIGED, TransitionName.OBLIGATION_DONE),
    }
)
"""Of an effect that was collected: how it came to be admitted, or ended without that. The admission and all that came
of it stay, since a permit stays spent and a charge counts for ever (PER-04, BUD-02)."""

INVOCATIONS_LEAVE: Final = frozenset({TransitionName.INVOCATION_OPENED, TransitionName.INVOCATION_ENDED})
"""Of an invocation that was collected."""

MAY_LEAVE: Final = LOOKS_LEAVE | EFFECTS_LEAVE | INVOCATIONS_LEAVE
"""Every kind of span that an archive may take away; the database refuses any other (LED-05)."""

SEQUENCE_BYTES: Final = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaving:
    """What an archive takes away.

    Attributes:
        count: spans that leave now.
        digest: `gone_digest` over every sequence that is archived afterwards, those of earlier archives included.
    """

    count: int
    digest: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LeafRow:
    """The place and the leaf of one span, whether the span is there or archived."""

    epoch: int
    sequence: int
    leaf: bytes


def gone_digest(sequences: Iterable[int]) -> str:
    """Return SHA-256, in hex, over sequences in order, each as 8 bytes, big endian."""
    hashed = hashlib.sha256()
    for sequence in sequences:
        hashed.update(sequence.to_bytes(SEQUENCE_BYTES, "big"))
    return hashed.hexdigest()
