"""One running process that can dispatch: a lock file that it holds for life, and the boot it lives in (ADM-07).

A lock that is free, or another boot, proves that the instance is gone. A missing file proves nothing: then only the
deadline of its claims counts. Proof of absence turns an admission into `unknown` and never into anything better.
A file under its final name was locked before it got that name, so that a free one always means an end.
"""

import fcntl
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from issuer.clock import boot_id
from ledger.errors import LedgerUnavailable

_SUFFIX: Final = ".lock"
_DRAFT_SUFFIX: Final = ".new"


def _locked_file(folder: Path, name: str) -> int:
    """Make the lock file of `name`, locked from the first moment that it has its name, and return its descriptor."""
    draft = folder / (name + _DRAFT_SUFFIX)
    descriptor = os.open(draft, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # A link and not a renaming: that would take the place of another instance's file.
        os.link(draft, folder / (name + _SUFFIX))
    except OSError:
        os.close(descriptor)
        raise
    finally:
        draft.unlink(missing_ok=True)
    return descriptor


def dead_instances(folder: Path) -> frozenset[str]:
    """Return the instances that ended without closing, or with a claim still open: their lock file is there and free.

    The lock is asked for as a shared one, so that two askers never take each other for a living owner.
    """
    dead: set[str] = set()
    for path in folder.glob(f"*{_SUFFIX}"):
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        except OSError:
            continue
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
            dead.add(path.name.removesuffix(_SUFFIX))
        except OSError:
            continue
        finally:
            os.close(descriptor)
    return frozenset(dead)


def living_instances(folder: Path) -> frozenset[str]:
    """Return the instances that run now, on this machine: their lock is held."""
    named = {path.name.removesuffix(_SUFFIX) for path in folder.glob(f"*{_SUFFIX}")}
    return frozenset(named - dead_instances(folder))


def forget_instance(folder: Path, name: str) -> None:
    """Remove the lock file of a dead instance that no open claim names; names are never used again.

    Raises:
        OSError: as the system reports it.
    """
    (folder / (name + _SUFFIX)).unlink(missing_ok=True)


class Instance:
    """This process's own lock, and the question whether another instance is gone."""

    def __init__(self, folder: Path, name: str) -> None:
        """Take the lock `name` in `folder` until this object or the process ends.

        Raises:
            LedgerUnavailable: the lock file cannot be made.
        """
        self._folder = folder
        self._guard = threading.Lock()
        self._working, self._is_closing = 0, False
        self.name = name
        self.boot = boot_id()
        try:
            folder.mkdir(mode=0o700, exist_ok=True)
            self._descriptor: int | None = _locked_file(folder, name)
        except OSError as fault:
            message = f"This process's lock file cannot be made: {fault.strerror}."
            raise LedgerUnavailable("instance_lock", message) from None

    def is_gone(self, instance: str, boot: str) -> bool:
        """Say whether the instance that made a claim is provably gone.

        A claim without an instance belongs to a host outside: nothing but its deadline tells.
        """
        if not instance or instance == self.name:
            return False
        if boot and self.boot and boot != self.boot:
            return True
        try:
            descriptor = os.open(
                self._folder / (instance + _SUFFIX), os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW
            )
        except OSError:
            return False
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
        finally:
            os.close(descriptor)
        return True

    def close(self, *, keep_file: bool) -> None:
        """Let the lock go, once. The file stays where a claim of ours is still open, so that others can see us gone."""
        if not keep_file and not self._working:
            with suppress(OSError):  # one that stays only means that others look once whether we are gone
                (self._folder / (self.name + _SUFFIX)).unlink(missing_ok=True)
        self._is_closing = True
        self._let_go()

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """Hold the lock, also past `close`, while a thread of this process may be sending (ADM-07).

        Raises:
            LedgerUnavailable: `closed`; nothing may be sent any more.
        """
        with self._guard:
            if self._is_closing:
                raise LedgerUnavailable("closed", "This issuer was closed.")
            self._working += 1
        try:
            yield
        finally:
            with self._guard:
                self._working -= 1
            self._let_go()

    def _let_go(self) -> None:
        """Close the descriptor, once, when nobody is at work: the number may be another file's afterwards."""
        with self._guard:
            if self._working or not self._is_closing:
                return
            descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)
