"""The mark beside a ledger that stops new effects: a check found that what is stored cannot be trusted.

Rules: LED-04 (new effects stop, the reason is one sentence, reading goes on), REP-07 (fail closed). The mark is a file
of one line, the word of the first finding. That it is there is what counts; whatever stands in it lifts nothing.
Next: `ledger.sqlite.store` refuses to write where it stands; `issuer.checking` sets and lifts it.
"""

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ledger.errors import LedgerCorrupt, LedgerUnavailable

_MARK: Final = "halted"
_LINE_BYTES_MAX: Final = 64
_WORD: Final = re.compile(r"[a-z_]{1,60}")
_NO_WORD: Final = "unreadable"


@dataclass(frozen=True, slots=True, kw_only=True)
class Halt:
    """One mark as it was seen: its word, and which writing of the file it was, so that a later one is not lifted."""

    word: str
    written: tuple[int, int]


def _mark(ledger: Path) -> Path:
    return ledger.with_name(_MARK)


def standing_halt(ledger: Path) -> Halt | None:
    """Return the mark beside the ledger file, or None; one that cannot be read stands all the same."""
    path = _mark(ledger)
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        return None
    except OSError:
        return Halt(word=_NO_WORD, written=(0, 0))
    try:
        seen = os.fstat(descriptor)
        text = os.read(descriptor, _LINE_BYTES_MAX).decode("ascii", "replace").strip()
    except OSError:
        return Halt(word=_NO_WORD, written=(0, 0))
    finally:
        os.close(descriptor)
    word = text if _WORD.fullmatch(text) else _NO_WORD
    return Halt(word=word, written=(seen.st_ino, seen.st_mtime_ns))


def refuse_halted(ledger: Path) -> None:
    """Refuse to go on where the mark stands.

    Raises:
        LedgerCorrupt: `halted`, with the next step.
    """
    halt = standing_halt(ledger)
    if halt is not None:
        message = (
            f"A check of the ledger found a problem ({halt.word}), so nothing new is done; "
            "run `issuer ledger check` and repair what it names."
        )
        raise LedgerCorrupt("halted", message)


def set_halt(ledger: Path, word: str) -> None:
    """Set the mark, durable when this returns.

    Raises:
        LedgerUnavailable: `unwritable`; new effects are not stopped.
    """
    path = _mark(ledger)
    fresh = path.with_name(f"{_MARK}.{os.getpid()}")
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        descriptor = os.open(fresh, flags, 0o600)
        try:
            os.write(descriptor, f"{word}\n".encode())
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        # A new file each time: `lift_halt` can tell this mark from an earlier one.
        fresh.replace(path)
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    except OSError as fault:
        message = f"The mark that stops new effects cannot be written: {fault.strerror}."
        raise LedgerUnavailable("unwritable", message) from None


def lift_halt(ledger: Path, seen: Halt) -> bool:
    """Take away exactly the mark that was `seen`; say whether none stands now.

    One that was set since stays: it is about something that a check before it cannot have looked at.

    Raises:
        LedgerUnavailable: `unwritable`; it still stands.
    """
    if standing_halt(ledger) == seen:
        try:
            _mark(ledger).unlink(missing_ok=True)
        except OSError as fault:
            message = f"The mark that stops new effects cannot be removed: {fault.strerror}."
            raise LedgerUnavailable("unwritable", message) from None
    return standing_halt(ledger) is None
