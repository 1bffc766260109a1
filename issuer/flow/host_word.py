"""Step 7 of 8, for hosts: what the word of a host that sent by itself amounts to (REC-07, ADR-0007, ADR-0018).

Decides between a claim and a report. Any host's word is a claim: of success it settles at the maximum at least, and
every other leaves the effect unknown. A host that the owner admitted as a constraining wrapper for the operation saw
what happened: its first-hand report is believed, also where it releases something. Believed is only what comes in
time, first, and does not contradict itself; a late word of the same host is a claim like any other's.
Next: `issuer.flow.settle` records it under the claim.
"""

from dataclasses import replace
from enum import StrEnum

from issuer.flow.settle import Outcome, host_claims
from ledger.model import Amounts, Effect, EvidenceClass
from ledger.states import EffectState


class HostWord(StrEnum):
    """What a host says became of an effect."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    NO_EFFECT = "no_effect"
    UNKNOWN = "unknown"


_TARGETS = {
    HostWord.SUCCEEDED: EffectState.SUCCEEDED,
    HostWord.FAILED: EffectState.FAILED,
    HostWord.NO_EFFECT: EffectState.NO_EFFECT,
}
_CLAIM_REASONS = {HostWord.FAILED: "host_says_failed", HostWord.NO_EFFECT: "host_says_no_effect"}


def host_outcome(
    effect: Effect, word: HostWord, *, reported: Amounts | None, source: str, is_wrapper: bool
) -> Outcome:
    """Return what a host's word amounts to.

    Args:
        effect: the admitted effect.
        word: what the host says.
        reported: measured cost per unit, or None. A unit that a wrapper did not measure is charged its maximum where
            something happened.
        source: where the word comes from.
        is_wrapper: whether the owner admitted the host as a constraining wrapper for the effect's operation, as bound.
    """
    claim = _claimed(effect, word, reported, source)
    target = _TARGETS.get(word)
    if not is_wrapper or target is None:
        return claim
    if target is EffectState.NO_EFFECT and any((reported or {}).values()):
        # REC-05: it cost something and did nothing; a person looks.
        return replace(claim, reason="charge_contradicts_report")
    return Outcome(
        target=target,
        evidence_class=EvidenceClass.WRAPPER,
        source=source,
        reason="wrapper_reports",
        charged=reported,
        when_late=claim,
    )


def _claimed(effect: Effect, word: HostWord, reported: Amounts | None, source: str) -> Outcome:
    """Return what any host's word amounts to."""
    is_success = word is HostWord.SUCCEEDED
    claim = host_claims(effect, succeeded=is_success, reported=reported, source=source)
    return replace(claim, reason=_CLAIM_REASONS.get(word, claim.reason))
