"""`audit checkpoint` and `audit key`: a signed head of the trail to keep elsewhere, and what it is verified with.

Rules: AUD-04, SUR-02. A checkpoint is signed only where the ledger goes on from all that was signed before; a no says
why, is on record, and leaves it to people. Next: `issuer.checkpoints.signing`.
"""

from typing import Final

from issuer import answering
from issuer.checkpoints.errors import CheckpointRefused
from issuer.checkpoints.notes import Copies, vkeys
from issuer.checkpoints.signing import DEMANDED_S, Made, Reason, sign
from issuer.clock import instant_text
from issuer.commands.edge import at_the_edge
from issuer.flow import spans
from issuer.flow.refusing import RefusedError
from issuer.house import Visit
from issuer.sealing import KeyState
from issuer.wire import Answer
from issuer.wire.codes import CODES
from ledger.errors import Broken
from ledger.model import InstantMs
from ledger.refusals import RefusalCode

__all__ = ["audit_checkpoint", "audit_key"]

WAIT_S: Final = 10.0
"""Seconds to wait for another process that signs: a long trail without a memory takes some to be read once."""

_STANDS: Final = "Nothing happened since this checkpoint was signed; keep a copy of it elsewhere."
_LEFT: Final = (
    "A restore left later checkpoints behind; this is the first of what the ledger holds since. Keep both."
)
_COPY: Final = "Not all copies are in {folder} ({trouble}): repair that, and give this command again."


def audit_checkpoint(visit: Visit) -> Answer:
    """Sign a checkpoint of all spans, or show the newest where nothing happened since; copies are made as declared.

    The answer has `size`, `root` (64 hex digits), `epoch`, `key`, `signed` (when), `note` (the signed note), `file`,
    and where copies are declared `copies` with `folder`, `missing` and `trouble`.
    """

    def run() -> Answer:
        try:
            made = sign(
                visit.house,
                Reason.DEMANDED,
                wait_s=WAIT_S,
                elsewhere_s=DEMANDED_S,
                said=spans.common(visit),
            )
        except CheckpointRefused as no:
            raise RefusedError(RefusalCode.CHECKPOINT_REFUSED, field=no.reason, say=no.message) from None
        if made is None:
            raise Broken("a checkpoint on demand is always made")
        return answering.about(visit.house, "checkpointed", say=_say(made), more=_told(made))

    return at_the_edge(visit, run)


def audit_key(visit: Visit) -> Answer:
    """Show the public key of checkpoints, and those before it: what a reviewer keeps elsewhere to verify with.

    The answer's `vkeys` is a line each, the active key first, without those of revoked keys; `checkpoint_keys` has each
    with `key`, `state`, `since` and `vkey`.
    """

    def run() -> Answer:
        ring = visit.house.ring
        ring.notice()
        rows: list[dict[str, object]] = []
        lines = []
        for key_id, line in vkeys(ring, visit.house.ledger.ledger_id).items():
            state, since = ring.state(key_id), ring.since_ms(key_id)
            rows.append(
                {
                    "key": f"{key_id:08x}",
                    "state": str(state),
                    "since": None if since is None else instant_text(InstantMs(since)),
                    "vkey": line,
                }
            )
            if state not in {KeyState.REVOKING, KeyState.REVOKED}:
                lines.append(f"{line}\n")
        more: dict[str, object] = {"vkeys": "".join(lines), "checkpoint_keys": rows}
        return answering.about(visit.house, "found", more=more)

    return at_the_edge(visit, run)


def _say(made: Made) -> str:
    said = CODES["checkpointed"].say if made.is_new else _STANDS
    parts = [said, _LEFT] if made.has_left else [said]
    if made.copies.trouble or made.copies.missing:
        parts.append(
            _COPY.format(
                folder=made.copies.folder, trouble=made.copies.trouble or f"{made.copies.missing} missing"
            )
        )
    return " ".join(parts)


def _told(made: Made) -> dict[str, object]:
    told: dict[str, object] = {
        "size": made.kept.size,
        "root": made.root.hex(),
        "epoch": made.kept.epoch,
        "key": f"{made.key_id:08x}",
        "signed": instant_text(made.at_ms),
        "file": str(made.file),
        "note": made.note.decode("utf-8"),
        "lines": [f"  | {line}" for line in made.note.decode("utf-8").splitlines()],
    }
    return told if made.copies.folder is None else {**told, "copies": _copies(made.copies)}


def _copies(copies: Copies) -> dict[str, object]:
    return {"folder": copies.folder, "missing": copies.missing, "trouble": copies.trouble}
