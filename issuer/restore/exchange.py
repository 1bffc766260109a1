"""A new ledger file in the place of the old one, so that a crash at any point leaves one that is whole, or none.

Rules: LED-08, LED-01, LED-04 (what was there stays as evidence). SQLite finds a write-ahead log by its name, so the new
file must never stand beside the old one's log, nor the old one without it: either would pass for a ledger, with a
history that never was. So the old file goes first, then its log, then the new one comes. In between there is no ledger,
and everything that is asked for is refused; a second restore goes on from there.
Next: `issuer.restore.restoring`.
"""

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Final

from issuer.places import Places
from ledger.errors import LedgerUnavailable

_SUFFIXES: Final = ("", "-wal", "-shm")
_TRIES_MAX: Final = 1000
_GOING: Final = "going"
"""In the folder of a restore: the name of the folder that the old files are going to."""


def cleared(places: Places) -> Path:
    """Return the path at which to build the new ledger, in a folder of its own that holds nothing else.

    Old files that an interrupted exchange left behind go where their ledger went.

    Raises:
        LedgerUnavailable: the folder cannot be made or emptied.
    """
    folder = places.restoring
    try:
        places.ledger_folder.mkdir(mode=0o700, exist_ok=True)
        _finish(places)
        if folder.exists():
            shutil.rmtree(folder)
        folder.mkdir(mode=0o700)
    except OSError as fault:
        raise _unwritable(fault) from None
    return folder / places.ledger.name


def exchange(
    places: Places, built: Path, *, epoch: int, observe: Callable[[str], None] = lambda _step: None
) -> Path | None:
    """Put the ledger `built` in its place; return the folder that the old files are in now, None where there were none.

    `observe` is told what was done.

    Raises:
        LedgerUnavailable: the system refused; what is not moved yet stands where it was.
    """
    try:
        _sync(built)
        kept = _move_away(places, epoch, observe)
        built.replace(places.ledger)
        observe("placed")
        _sync(places.ledger_folder)
        shutil.rmtree(places.restoring)
        _sync(places.ledger_folder)
    except OSError as fault:
        raise _unwritable(fault) from None
    return kept


def _move_away(places: Places, epoch: int, observe: Callable[[str], None]) -> Path | None:
    if not any(os.path.lexists(path) for path in _files(places)):
        return None
    kept = _new_folder(places.ledger_folder, f"before-epoch-{epoch}")
    marker = places.restoring / _GOING
    marker.write_text(kept.name, encoding="ascii")
    _sync(marker)
    _sync(places.restoring)
    _sync(places.ledger_folder)
    observe("marked")
    _move(places, kept, observe)
    return kept


def _finish(places: Places) -> None:
    """Move what an interrupted exchange left of the old ledger to where its file went."""
    marker = places.restoring / _GOING
    if os.path.lexists(places.ledger) or not any(os.path.lexists(path) for path in _files(places)):
        return
    kept = places.ledger_folder / marker.read_text(encoding="ascii") if marker.exists() else None
    if kept is None or not kept.is_dir():
        kept = _new_folder(places.ledger_folder, "without-file")
    _move(places, kept)


def _files(places: Places) -> tuple[Path, ...]:
    return tuple(places.ledger.with_name(places.ledger.name + suffix) for suffix in _SUFFIXES)


def _move(places: Places, kept: Path, observe: Callable[[str], None] = lambda _step: None) -> None:
    for path in _files(places):
        if os.path.lexists(path):
            path.rename(kept / path.name)
            # One at a time: the log must not be away on disk while its file still stands there.
            _sync(kept)
            _sync(places.ledger_folder)
            observe(f"moved {path.suffix.removeprefix('.')}")


def _new_folder(parent: Path, name: str) -> Path:
    for number in range(1, _TRIES_MAX):
        folder = parent / (name if number == 1 else f"{name}.{number}")
        try:
            folder.mkdir(mode=0o700)
        except FileExistsError:
            continue
        _sync(parent)
        return folder
    raise LedgerUnavailable("unwritable", f"There are too many folders {name} beside the ledger.")


def move_aside(path: Path, *, epoch: int) -> Path | None:
    """Give whatever stands at the place of a sink another name beside it; return that, None where nothing stood.

    Raises:
        LedgerUnavailable: the system refused.
    """
    if not os.path.lexists(path):
        return None
    for number in range(1, _TRIES_MAX):
        aside = path.with_name(f"{path.name}.before-epoch-{epoch}" + ("" if number == 1 else f".{number}"))
        if not os.path.lexists(aside):
            try:
                path.rename(aside)
                _sync(path.parent)
            except OSError as fault:
                raise _unwritable(fault) from None
            return aside
    raise LedgerUnavailable("unwritable", f"There are too many old files {path.name}.")


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _unwritable(fault: OSError) -> LedgerUnavailable:
    return LedgerUnavailable("unwritable", f"The files of the ledger cannot be exchanged: {fault.strerror}.")
