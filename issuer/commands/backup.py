"""`ledger backup` and `ledger restore`: a copy of the ledger, and the way back to one (LED-08).

Both take a profile's path and not an open issuer: whoever restores has no ledger to open. What is in force says who may
(`issuer.unopened`), and which sinks there are; a draft on disk says nothing.
"""

from pathlib import Path
from typing import Final

from issuer.backup import back_up
from issuer.restore.restoring import Restored, restore
from issuer.unopened import UNSIGNED, Act, ActRefused
from issuer.wire import Answer
from issuer.wire.codes import CODES

_KEEP: Final = (
    "Keep beside it, elsewhere than on this machine: profile and policies, and (each secret) keys/, protected/ "
    "and the credentials themselves. Without these keys nobody can restore it."
)
_THAW: Final = (
    "No audit file proves what was admitted since, so every open task is frozen: look at each and thaw it."
)


def ledger_backup(profile_path: Path, file: Path, *, act: Act = UNSIGNED) -> Answer:
    """Copy the ledger to the new file `file`, while it is in use.

    Raises:
        SetupError, Fault: no copy is there.
    """
    try:
        made = back_up(profile_path, file, act=act)
    except ActRefused as no:
        return no.answer
    say = " ".join(part for part in (CODES["backed_up"].say, made.ground.unread, _KEEP) if part)
    if made.unshipped is not None:
        say = f"{say} The audit sink has not taken note of it yet ({made.unshipped})"
    return Answer(
        issuer=made.ground.issuer,
        code="backed_up",
        mode=made.ground.mode,
        say=say,
        more={
            "file": str(made.file),
            "bytes": made.size_bytes,
            "epoch": made.base.epoch,
            "sequence": made.base.sequence,
        },
    )


def ledger_restore(profile_path: Path, file: Path, *, act: Act = UNSIGNED) -> Answer:
    """Bring the ledger back as it was in the backup `file`, in a new epoch.

    Raises:
        Fault: it was not restored; the sentence says what to do.
    """
    try:
        done = restore(profile_path, file, act=act)
    except ActRefused as no:
        return no.answer
    outcome = done.outcome
    return Answer(
        issuer=done.ground.issuer,
        code="restored",
        mode=done.ground.mode,
        say=_restored_say(done),
        more={
            "epoch": done.epoch,
            "base": {"epoch": done.base.epoch, "sequence": done.base.sequence},
            "replayed": len(outcome.replayed),
            "unknown": len(outcome.unknown),
            "revoked": len(outcome.revoked),
            "frozen": sorted(set(outcome.frozen)),
            "stopped": outcome.stopped,
            "credentials": outcome.credentials,
            "activate": outcome.is_unruled,
            "sinks": {sink.registration.name: str(sink.state) for sink in done.sinks},
            "kept": None if done.kept is None else f"ledger/{done.kept.name}",
        },
    )


def _restored_say(done: Restored) -> str:
    parts = [CODES["restored"].say]
    if done.ground.unread:
        parts.append(done.ground.unread)
    held = len(done.outcome.replayed) + len(done.outcome.unknown)
    if held:
        parts.append(
            f"{held} effects may have been done, and hold their maximum until the truth is known: "
            "`issuer list --state unknown`."
        )
    if not done.complete:
        parts.append(_THAW)
    elif done.outcome.frozen:
        parts.append("Tasks that were opened or frozen since are frozen: thaw them to go on.")
    if done.outcome.stopped:
        parts.append(
            f"Stopped until it is thawed: {', '.join(done.outcome.stopped)} (`issuer thaw KIND NAME`)."
        )
    if done.outcome.credentials:
        parts.append(f"Void, to be issued anew: the credentials of {', '.join(done.outcome.credentials)}.")
    if done.outcome.is_unruled:
        parts.append(
            "Another revision of the owner's files was activated after the backup, so none is in force: "
            "look at them, and run `issuer activate`."
        )
    if done.unshipped is not None:
        parts.append(f"The audit sink has not taken note of it yet ({done.unshipped})")
    return " ".join(parts)
