"""Where the signer keeps what it must not forget: a private folder outside the ledger's own, beside its audit file.

Rules: AUD-04 (a ledger that is rolled back does not take the signer's memory back with it), AUD-03 (the ledger says
where its audit files are, and the environment does not), SEC-03 (owner only).
A lock in it makes processes sign one after another. What is wrong with it is told with what to do.
Next: `issuer.checkpoints.memory` and `issuer.checkpoints.notes`, the files in it.
"""

import errno
import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from issuer.checkpoints.errors import CheckpointUnavailable
from issuer.places import state_folder
from issuer.sealing import StorageFault
from issuer.sealing.private_files import (
    FILE_MODE,
    Flaw,
    create_folder,
    list_names,
    opened_folder,
    read_file,
    sync,
    write_new_file,
)
from ledger.port import Ledger

__all__ = ["LOCK_NAME", "carry_along", "checkpoint_folder", "signing_alone", "unavailable"]

LOCK_NAME: Final = "lock"
FOLDER_NAME: Final = "checkpoints"

_TRY_S: Final = 0.01
_ALONG_S: Final = 5.0

_FILE_BYTES_MAX: Final = 8 * 1024
"""No file of the signer is longer: the memory, at most."""

_NEXT: Final = {
    StorageFault.OPEN_TO_OTHERS: "chmod the folder to 0700 and its files to 0600.",
    StorageFault.FOREIGN_OWNER: "chown it to the issuer's account.",
    StorageFault.SYMLINK: "put the real folder or file in its place.",
    StorageFault.HARD_LINKED: "remove the second name.",
}


def checkpoint_folder(ledger: Ledger) -> Path:
    """Return the folder of a ledger's checkpoints: beside its first audit file, or below the user's state folder.

    Raises:
        Fault: the ledger cannot be read.
    """
    for sink in ledger.read(lambda view: view.sinks()):
        place = Path(sink.location)
        if sink.kind == "jsonl" and place.is_absolute():
            return place.parent / FOLDER_NAME
    return state_folder() / "permit-issuer" / ledger.ledger_id / FOLDER_NAME


@contextmanager
def signing_alone(folder: Path, *, wait_s: float) -> Iterator[int]:
    """Make the folder where it is missing, and yield its descriptor, alone among all who sign.

    Raises:
        CheckpointUnavailable: it is not private or cannot be used, or another process signs for longer than `wait_s`.
    """
    try:
        create_folder(folder)
        with opened_folder(folder) as descriptor:
            flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
            lock = os.open(LOCK_NAME, flags, FILE_MODE, dir_fd=descriptor)
            try:
                _wait_for(lock, time.monotonic() + wait_s)
                yield descriptor
            finally:
                os.close(lock)
    except Flaw as flaw:
        raise unavailable(flaw.fault, folder / flaw.name) from None
    except OSError as fault:
        raise _from_system(fault, folder) from None


def carry_along(before: Path, after: Path) -> bool:
    """Copy what the signer must not forget to where the audit file stands now; return whether it is all there.

    What was signed is copied first and the memory last. The old folder stays as it is.
    """
    if before == after or not before.is_dir():
        return True
    try:
        with (
            signing_alone(before, wait_s=_ALONG_S) as source,
            signing_alone(after, wait_s=_ALONG_S) as target,
        ):
            names = [name for name in list_names(source) if name != LOCK_NAME and not name.endswith(".new")]
            for name in sorted(names):  # notes begin with a digit, so `latest` and the memory come last
                data = read_file(source, name, bytes_max=_FILE_BYTES_MAX, links_max=1)
                with suppress(FileNotFoundError):
                    os.unlink(name, dir_fd=target)
                write_new_file(target, name, data)
            sync(target)
    except (CheckpointUnavailable, Flaw, OSError):
        return False
    return True


def unavailable(reason: StorageFault, path: Path) -> CheckpointUnavailable:
    """Return the fault that says what is wrong with a file or folder of the signer, and what to do."""
    remedy = _NEXT.get(reason, "repair it: owner, modes, free space.")
    where = f"{path.parent.name}/{path.name}"
    return CheckpointUnavailable(
        reason.value, f"No checkpoint was signed: {where} cannot be used ({reason.value}); {remedy}"
    )


def _from_system(fault: OSError, folder: Path) -> CheckpointUnavailable:
    if fault.errno in {errno.ENOSPC, errno.EDQUOT}:
        say = f"No checkpoint was signed: there is no room in {folder.parent.name}/{folder.name}; free some space."
        return CheckpointUnavailable("disk_full", say)
    return unavailable(StorageFault.UNWRITABLE, folder)


def _wait_for(lock: int, until: float) -> None:
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= until:
                say = "No checkpoint was signed: another process is signing one; try again."
                raise CheckpointUnavailable("busy", say) from None
            time.sleep(_TRY_S)
        else:
            return
