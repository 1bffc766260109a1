"""`audit report --verify`: a report held against a key, and counted again from an export, without a profile (AUD-09).

In order: 1. the note is a report that one of the keys signed   2. with an export, of the same ledger: the spans of the
period are in it, once each and in order, and are as many of each kind as was signed. It does not prove the export; that
is `audit verify` (AUD-04). Next: `audit.reports`.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from audit.errors import NoteRefused, TrailUnreadable
from audit.notes import NOTE_BYTES_MAX, VerifierKey
from audit.reports import opened_report, recount
from audit.sinks.lines import HEADER_BYTES_MAX, header_line
from audit.verification import Verdict
from issuer.sealing import is_ed25519_signature
from issuer.verifying import Given
from issuer.wire import Answer

__all__ = ["verify_report"]

_SIGNED: Final = "The report is the one that was signed."
_COUNTED: Final = "The report is the one that was signed, and the export has as many spans of each kind."
_DIFFERS: Final = "The export does not have as many spans as was signed."


def verify_report(report: Path, export: Path | None, given: Given) -> Answer:
    """Verify a report; with `export`, count it again from there.

    Raises:
        TrailUnreadable: a file cannot be read.
    """
    try:
        found = _opened(_bytes_of(report), given.keys)
        ledger = str(found.get("ledger"))
        more: dict[str, object] = {
            "ledger": ledger,
            **{name: found.get(name) for name in ("since", "until", "spans")},
        }
        if export is None:
            return _said(ledger, Verdict.VERIFIED, _SIGNED, more)
        counted = _recounted(found, export, ledger)
    except NoteRefused as fault:
        return _said("", Verdict.TAMPERED, f"{fault.message[0].upper()}{fault.message[1:]}.", {})
    except OSError as fault:
        raise TrailUnreadable(f"A file cannot be read: {fault.strerror}.") from None
    same = counted == (found.get("spans"), found.get("transitions"))
    more["counted"] = counted[0]
    return _said(ledger, Verdict.VERIFIED if same else Verdict.TAMPERED, _COUNTED if same else _DIFFERS, more)


def _opened(note: bytes, keys: Sequence[VerifierKey]) -> dict[str, Any]:
    fault = NoteRefused("no key was given")
    for key in keys:
        try:
            return opened_report(note, key, is_ed25519_signature)
        except NoteRefused as refused:
            fault = refused
    raise fault


def _recounted(report: dict[str, Any], export: Path, ledger: str) -> tuple[int, dict[str, int]]:
    with export.open("rb") as file:
        if file.readline(HEADER_BYTES_MAX) != header_line(ledger):
            raise NoteRefused("the export is not the whole trail of that ledger")
        return recount(report, file)


def _bytes_of(file: Path) -> bytes:
    with file.open("rb") as opened:
        return opened.read(NOTE_BYTES_MAX + 1)


def _said(ledger: str, verdict: Verdict, say: str, more: dict[str, object]) -> Answer:
    return Answer(issuer=ledger, code=str(verdict), mode="", say=say, more=more)
