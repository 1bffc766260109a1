"""The newest checkpoint: whether the ledger goes on from it, how old it is, and whether its copies are in place.

Rules: AUD-04. A ledger that contradicts a checkpoint was rolled back or exchanged, and people have to know. That none
is signed, or that copies are missing, keeps nothing from being sent, and is a hint.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

from issuer.clock import instant_text, now_ms
from issuer.selfcheck.finding import Finding, Known

if TYPE_CHECKING:
    from issuer.checkpoints.looking import Standing

_DEMAND: Final = "Run `issuer audit checkpoint`, and keep what it prints elsewhere."
_TROUBLES: Final = {
    "missing": "it is not there",
    "unreadable": "it cannot be read",
    "full": "it has no room",
    "unwritable": "it cannot be written",
    "different": "one there is not the note that was signed",
    "slow": "it does not answer",
}
_REPAIR: Final = "Repair that folder; the next checkpoint copies all that is missing there."
_COMPARE: Final = "Compare it with the one beside the audit file, find out who wrote there, and leave both."
_OVERDUE_TIMES: Final = 2
"""Intervals after which a checkpoint is late: one may pass while no command is given."""

_MINUTE_MS: Final = 60_000


def checkpoints(known: Known) -> Iterator[Finding]:
    """Hold the ledger against the newest checkpoints, and say how old the last one is."""
    from issuer.checkpoints.errors import CheckpointRefused, CheckpointUnavailable
    from issuer.checkpoints.looking import standing

    ledger, ring = known.the_ledger(), known.the_ring()
    folder, elsewhere = _folders(known)
    try:
        found = standing(folder, elsewhere, ledger, ring)
    except CheckpointRefused as fault:
        yield Finding(check="checkpoints", ok=False, says=fault.says, next=fault.next)
        return
    except CheckpointUnavailable as fault:
        says = f"No checkpoint can be signed: {folder} is not as it must be ({fault.reason})."
        yield Finding(check="checkpoints", ok=False, says=says, next="Repair it: owner, mode 0700, no links.")
        return
    if found is None:
        yield Finding(check="checkpoints", ok=True, says="No checkpoint was signed yet.", next=_DEMAND)
    elif found.memory is None:
        says = "What the signer remembers is gone, or was not written with these keys; its notes are what it goes by."
        yield Finding(check="checkpoints", ok=True, says=says, next=_DEMAND)
    else:
        yield _newest(known, found)


def copies(known: Known) -> Iterator[Finding]:
    """Say whether every checkpoint has its copy, where the owner wants one."""
    from issuer.checkpoints.looking import copies_standing

    known.the_profile()
    folder, elsewhere = _folders(known)
    if elsewhere is None:
        says = "No folder for copies of checkpoints is declared."
        yield Finding(
            check="checkpoint_copies",
            ok=True,
            says=says,
            next="Name one on another machine: `copy_to` of `[audit] checkpoint`.",
        )
        return
    state = copies_standing(folder, elsewhere, known.the_ring(), known.the_ledger())
    if state.trouble:
        remedy = _COMPARE if state.trouble == "different" else _REPAIR
        says = f"Copies of checkpoints: {elsewhere}: {_TROUBLES[state.trouble]}; {state.missing} missing."
        yield Finding(check="checkpoint_copies", ok=True, says=says, next=remedy)
    elif state.missing:
        says = f"Copies of checkpoints: {state.missing} missing in {elsewhere}."
        yield Finding(check="checkpoint_copies", ok=True, says=says, next=_DEMAND)
    else:
        yield Finding(
            check="checkpoint_copies", ok=True, says=f"Every checkpoint has its copy in {elsewhere}."
        )


def _folders(known: Known) -> tuple[Path, Path | None]:
    from issuer.checkpoints.folder import checkpoint_folder
    from issuer.checkpoints.signing import named_folder

    folder, profile = checkpoint_folder(known.the_ledger()), known.profile
    return folder, None if profile is None else named_folder(profile, known.places)


def _newest(known: Known, found: "Standing") -> Finding:
    memory = found.memory
    if memory is None:
        raise TypeError("a checkpoint is remembered here")
    age_ms = max(0, now_ms() - memory.at_ms)
    newer = (
        "no span is" if not found.newer else "1 span is" if found.newer == 1 else f"{found.newer} spans are"
    )
    says = (
        f"The newest checkpoint holds {memory.tree.size} spans, of {instant_text(memory.at_ms)} "
        f"({age_ms // _MINUTE_MS} minutes ago); {newer} newer."
    )
    wanted = None if known.profile is None else known.profile.audit.checkpoint
    is_late = wanted is not None and found.newer > 1 and age_ms > _OVERDUE_TIMES * wanted.every_ms
    return Finding(check="checkpoints", ok=True, says=says, next=_DEMAND if is_late else "")
