"""File adapter: creates, replaces or deletes one file below an owner's root, once.

Decides when the directory entry changes, and what can be said afterwards. Rules: EFF-02, EFF-06, EFF-07,
OPR-04, REP-04, REP-05.

1. The content is staged and synced first, under no name (O_TMPFILE) or one that no path can name.
2. What preparation pinned is compared again, on open descriptors. Up to here nothing happened to the target,
   and every failure is `NotDispatchedError`.
3. One system call changes the entry: `link` for create, which the file system refuses where the name exists
   (`NO_EFFECT`, a conditional write); `rename` or `unlink` for replace and delete, which are preceded by a
   check and therefore need directories that this account alone can write to (OPR-04).
4. The directory is synced, and the entry looked at again. From step 3 on every exception passes through: the
   outcome is unknown.

A crash leaves the old or the complete new content, never a part. It can leave a staged name behind; nothing
sweeps it, because deleting is an effect of its own, and it never counts as the target. Replacing keeps the
permission bits and loses extended attributes.

The deadline is looked at once more right before the system call of step 3. A process that is stopped between the
two and goes on later changes the entry late: nobody can have released the effect meanwhile, since that demands
that its sender is gone (ADM-07).
Next: `issuer.flow` settles the answer; `file_inspection` says later what is there.
"""

import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Final, assert_never

from issuer.clock import steady_s
from issuer.operations.contract import (
    Answer,
    Inspection,
    Look,
    NotDispatchedError,
    Order,
    Preparation,
    PreparationRefusedError,
    Proof,
    Request,
    Seen,
)
from issuer.operations.declaration import Abilities, ConditionalWrite
from issuer.operations.file_inspection import Expected, look_at_entry
from issuer.operations.file_place import (
    STAGED_PREFIX,
    Content,
    Place,
    PlaceRefusedError,
    change_stamp,
    entry_identity,
    identity,
    open_content,
    open_place,
    split_path,
)
from issuer.operations.implementation import implementation_digest, template_parts
from issuer.operations.templates import Template
from ledger.model import EffectId

__all__ = ["ChangedUnseenError", "FileAction", "FileAdapter", "FileSettings"]

CONTENT_BYTES_MAX: Final = 1024 * 1024
"""Bytes of a new content: four times the largest payload, for templates that repeat a field."""

_NEW_MODE: Final = 0o644
"""Mode of a created file before the account's umask."""

_STAGED_MODE: Final = 0o600
_SOURCES: Final = (
    *("file_adapter.py", "file_inspection.py", "file_place.py"),
    *("templates.py", "contract.py", "implementation.py"),
)
_DIRECTORY_SEEN: Final = "directory_changed"
"""Pinned for inspection alone: a directory changes for many reasons, and none of them voids a permit."""

_OWN_REASONS: Final = frozenset({"content_too_large", "not_staged"})
_PERMISSIONS: Final = 0o777
_OCTAL: Final = re.compile(r"[0-7]{4}")
_DESCRIPTORS: Final = "/proc/self/fd"
"""Where Linux shows open descriptors as links; other systems have no such folder."""

_SIZING_EFFECT_ID: Final = EffectId("eff_" + "0" * 32)
"""Stands in for the identity while preparation measures the content; every identity has this length."""


class FileAction(StrEnum):
    """What happens to the one file."""

    CREATE = "create"
    REPLACE = "replace"
    DELETE = "delete"


class ChangedUnseenError(Exception):
    """After the change the directory or the old file is not as it must be: another writer was there; unknown.

    It notices an old file that moved aside or was written to. One that was overwritten in the window itself
    leaves no trace; that window is closed by privacy, not by this.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class FileSettings:
    """One declared file operation.

    Attributes:
        action: create, replace or delete.
        root: absolute path of the directory that nothing leaves; its own links are resolved once, when the
            adapter is made.
        path: template of the path below root.
        content: template of the whole new content in UTF-8; None for delete, and only there.
    """

    action: FileAction
    root: Path
    path: Template
    content: Template | None = None

    def __post_init__(self) -> None:
        """Refuse what the owner cannot have meant, with a `ValueError`."""
        if not self.root.is_absolute():
            raise ValueError("The root of a file operation is an absolute path.")
        if (self.content is None) != (self.action is FileAction.DELETE):
            raise ValueError("create and replace need a content, delete has none.")
        if any(place.is_effect_id for place in self.path.placeholders):
            raise ValueError("The path is pinned before there is an effect id.")


class FileAdapter:
    """Implements `contract.Adapter` and `contract.Inspector` for one declared file operation."""

    kind: Final = "file"

    def __init__(self, settings: FileSettings, *, ticks: Callable[[], float] = steady_s) -> None:
        """Take the owner's settings and monotonic seconds."""
        self._settings = settings
        self._root = Path(os.path.realpath(settings.root))
        self._ticks = ticks
        self._implementation = implementation_digest(
            self.kind,
            _SOURCES,
            {
                "action": str(settings.action),
                "root": str(self._root),
                "path": template_parts(settings.path),
                "content": None if settings.content is None else template_parts(settings.content),
            },
        )

    @property
    def implementation(self) -> str:
        """Digest (hex) of source and settings (OPR-02)."""
        return self._implementation

    @property
    def abilities(self) -> Abilities:
        """What the file system carries: `link` refuses a taken name, and privacy closes the window of the others.

        A root that others can write to is refused at preparation and again at dispatch, so that no replacing or
        deleting ever relies on a check alone (OPR-04).
        """
        creates = self._settings.action is FileAction.CREATE
        proofs = {Proof.SUCCEEDED, Proof.NO_EFFECT} if creates else {Proof.SUCCEEDED}
        return Abilities(proofs=frozenset(proofs), conditional=ConditionalWrite.FILE_SYSTEM)

    def prepare(self, request: Request) -> Preparation:
        """Find the entry and pin what must still hold; change nothing (EFF-06).

        Raises:
            PreparationRefusedError: the codes of `file_place`, `file_exists` for create, `root_not_private`
                for replace and delete, `content_too_large`.
        """
        try:
            self._content(request, _SIZING_EFFECT_ID)
            with self._place(request) as place:
                actual, preconditions = self._pins(place)
        except PlaceRefusedError as refused:
            code = refused.code
        else:
            return Preparation(
                actual=actual,
                destination={
                    "kind": self.kind,
                    "root": str(self._root),
                    "action": str(self._settings.action),
                },
                preconditions=preconditions,
            )
        raise PreparationRefusedError(code, None, "The file cannot be prepared as the operation says.")

    def still_holds(self, request: Request, preparation: Preparation) -> str | None:
        """Return the code with which a preparation would be refused now, or `target_changed` (EFF-07)."""
        try:
            with self._place(request) as place:
                actual, preconditions = self._pins(place)
        except PlaceRefusedError as refused:
            return refused.code
        is_same = actual == preparation.actual and _holding(preconditions) == _holding(
            preparation.preconditions
        )
        return None if is_same else "target_changed"

    def dispatch(self, order: Order) -> Answer:
        """Change the entry once.

        Raises:
            NotDispatchedError: `deadline_passed`, `target_changed`, `content_too_large`, or `not_staged`
                where the machine failed before the change; the target was not touched.
            OSError: the change itself, or making it durable, failed; the outcome is unknown.
            ChangedUnseenError: another writer was in the way; likewise unknown.
        """
        end_s = self._ticks() + order.remaining_ms / 1000
        self._check_time(end_s)
        with ExitStack() as opened:
            try:
                change = self._make_ready(order, opened)
            except PlaceRefusedError as refused:
                change, reason = None, refused.code
            except OSError:
                change, reason = None, "not_staged"
            else:
                reason = ""
            if change is None:
                raise NotDispatchedError(reason if reason in _OWN_REASONS else "target_changed")
            # The last look at the clock is right before the system call. The entry may change from there on: nothing
            # below it raises NotDispatchedError (REP-05).
            return change(lambda: self._check_time(end_s))

    def inspect(self, look: Look) -> Inspection:
        """Look at the entry, and say whether it shows this effect (REC-02); whatever goes wrong is unclear.

        The source is `file:` and what was seen. No reference, and no charge: a file has neither.
        """
        end_s = self._ticks() + look.remaining_ms / 1000
        try:
            with self._place(look.request) as place:
                pinned = look.preparation.actual
                is_there = all(pinned.get(part) == found for part, found in _entry(place).items())
                seen = Seen.DIFFERS
                if is_there:
                    seen = look_at_entry(place, self._expected(look), lambda: self._ticks() < end_s)
        except (PlaceRefusedError, OSError):
            seen = Seen.UNCLEAR
        return Inspection(seen=seen, source=f"{self.kind}:{seen}")

    def _expected(self, look: Look) -> Expected:
        """Return what the entry would show, if the effect happened and if it did not."""
        template, pinned = self._settings.content, look.preparation
        is_create = self._settings.action is FileAction.CREATE
        return Expected(
            directory=pinned.preconditions.get(_DIRECTORY_SEEN),
            old=None if is_create else {**pinned.preconditions, "file": pinned.actual.get("file")},
            new=None if template is None else self._content(look.request, look.effect_id),
            names_effect=template is not None and any(place.is_effect_id for place in template.placeholders),
        )

    def _make_ready(self, order: Order, opened: ExitStack) -> "_Change":
        """Stage the content, compare what was pinned, and return the one step that is left."""
        action = self._settings.action
        content = self._content(order.request, order.effect_id)
        place = opened.enter_context(self._place(order.request))
        pinned = order.preparation
        match action:
            case FileAction.CREATE:
                # That the name is free is for the file system to say, in the moment of the change.
                if _entry(place) != pinned.actual:
                    raise PlaceRefusedError("target_changed")
                return partial(_create, place, opened.enter_context(_staged_new(place, order, content)))
            case FileAction.REPLACE:
                mode = _pinned_mode(pinned)
                staged = opened.enter_context(_staged_named(place, order.effect_id, content, mode))
                return partial(_replace, place, staged, self._compare(place, pinned, opened))
            case FileAction.DELETE:
                return partial(_delete, place, self._compare(place, pinned, opened))
            case _:
                assert_never(action)

    def _compare(self, place: Place, pinned: Preparation, opened: ExitStack) -> "_Old":
        """Return the file that is there, held open, if it is the pinned one."""
        descriptor, content = opened.enter_context(open_content(place))
        if (_entry(place, content), _conditions(content)) != (pinned.actual, pinned.preconditions):
            raise PlaceRefusedError("target_changed")
        if not place.is_private:
            raise PlaceRefusedError("root_not_private")
        return _Old(descriptor=descriptor, content=content)

    def _check_time(self, end_s: float) -> None:
        """Refuse to begin after the deadline."""
        if self._ticks() >= end_s:
            raise NotDispatchedError("deadline_passed")

    def _place(self, request: Request) -> AbstractContextManager[Place]:
        """Open the place that this payload means."""
        path = self._settings.path.render(request.values, request.registries, None)
        return open_place(self._root, split_path(path))

    def _content(self, request: Request, effect_id: EffectId) -> bytes:
        """Return the new content, empty for delete."""
        template = self._settings.content
        if template is None:
            return b""
        content = template.render(request.values, request.registries, effect_id).encode("utf-8")
        if len(content) > CONTENT_BYTES_MAX:
            raise PlaceRefusedError("content_too_large")
        return content

    def _pins(self, place: Place) -> tuple[dict[str, object], dict[str, object]]:
        """Return what preparation pins: the entry, and what must still hold of it."""
        if self._settings.action is FileAction.CREATE:
            if entry_identity(place) is not None:
                raise PlaceRefusedError("file_exists")
            seen = change_stamp(os.fstat(place.directory_fd))
            return _entry(place), {"file": "absent", _DIRECTORY_SEEN: seen}
        if not place.is_private:
            raise PlaceRefusedError("root_not_private")
        with open_content(place) as (_descriptor, content):
            return _entry(place, content), _conditions(content)


_Gate = Callable[[], None]
"""Raises `NotDispatchedError` after the deadline; called right before the one system call."""

_Change = Callable[[_Gate], Answer]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Staged:
    """A new content, written and synced; `name` is None where it has none yet."""

    descriptor: int
    name: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Old:
    """The file that is to go, held open: the descriptor tells afterwards whether it was this one."""

    descriptor: int
    content: Content


def _entry(place: Place, content: Content | None = None) -> dict[str, object]:
    """Return the canonical identity of the entry: no path, which could mean another one later."""
    entry: dict[str, object] = {
        "kind": FileAdapter.kind,
        "root": place.root,
        "directory": place.directory,
        "name": place.name,
    }
    return entry if content is None else {**entry, "file": content.identity}


def _conditions(content: Content) -> dict[str, object]:
    """Return what must still hold of the file at commit."""
    return {
        "size": content.size,
        "sha256": content.sha256,
        "mode": f"{content.mode:04o}",
        "changed": content.changed,
    }


def _holding(preconditions: Mapping[str, object]) -> dict[str, object]:
    """Return what of the preconditions has to hold at commit."""
    return {name: value for name, value in preconditions.items() if name != _DIRECTORY_SEEN}


def _pinned_mode(pinned: Preparation) -> int:
    """Return the permission bits that the old file had, and the new one gets."""
    mode = pinned.preconditions.get("mode")
    if type(mode) is not str or _OCTAL.fullmatch(mode) is None:
        raise PlaceRefusedError("target_changed")
    return int(mode, 8)


@contextmanager
def _staged_new(place: Place, order: Order, content: bytes) -> Iterator[_Staged]:
    """Stage for create: without any name where the system can, so that a crash leaves nothing at all."""
    unnamed = getattr(os, "O_TMPFILE", None)
    descriptor = None
    if unnamed is not None and Path(_DESCRIPTORS).is_dir():
        with suppress(OSError):
            # File systems without it answer EOPNOTSUPP, and old kernels EISDIR.
            flags = unnamed | os.O_WRONLY | os.O_CLOEXEC
            descriptor = os.open(".", flags, _NEW_MODE, dir_fd=place.directory_fd)
    if descriptor is None:
        with _staged_named(place, order.effect_id, content, None) as staged:
            yield staged
        return
    try:
        _write(descriptor, content)
        yield _Staged(descriptor=descriptor, name=None)
    finally:
        os.close(descriptor)


@contextmanager
def _staged_named(place: Place, effect_id: EffectId, content: bytes, mode: int | None) -> Iterator[_Staged]:
    """Stage under a name of our own beside the entry, and take the name away if it is still there.

    Args:
        place: where.
        effect_id: makes the name unique; one effect is dispatched once, so an existing one is not ours.
        content: all of it.
        mode: permission bits to keep, or None for those of a new file.
    """
    name = STAGED_PREFIX + effect_id
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(name, flags, _NEW_MODE if mode is None else _STAGED_MODE, dir_fd=place.directory_fd)
    try:
        if mode is not None:
            os.fchmod(descriptor, mode & _PERMISSIONS)
        _write(descriptor, content)
        yield _Staged(descriptor=descriptor, name=name)
    finally:
        os.close(descriptor)
        # After a rename it is gone already; where it cannot be removed it stays as an unused name.
        with suppress(OSError):
            os.unlink(name, dir_fd=place.directory_fd)


def _write(descriptor: int, content: bytes) -> None:
    """Write everything and make it durable."""
    view = memoryview(content)
    while view:
        view = view[os.write(descriptor, view) :]
    os.fsync(descriptor)


def _create(place: Place, staged: _Staged, gate: _Gate) -> Answer:
    """Give the staged content the name, unless the name is taken."""
    made = identity(os.fstat(staged.descriptor))
    into = place.directory_fd
    has_descriptors = Path(_DESCRIPTORS).is_dir()
    gate()
    try:
        if has_descriptors:
            # By descriptor: a staged name in a shared directory could have been exchanged for another file.
            os.link(f"{_DESCRIPTORS}/{staged.descriptor}", place.name, dst_dir_fd=into, follow_symlinks=True)
        elif staged.name is not None:
            os.link(staged.name, place.name, src_dir_fd=into, dst_dir_fd=into, follow_symlinks=False)
    except FileExistsError:
        # A network file system that repeats a lost request reports our own success like this.
        if entry_identity(place) != made:
            return Answer(proof=Proof.NO_EFFECT, source="file:exists")
    os.fsync(into)
    if entry_identity(place) != made:
        raise ChangedUnseenError
    return Answer(proof=Proof.SUCCEEDED, source="file:created")


def _replace(place: Place, staged: _Staged, old: _Old, gate: _Gate) -> Answer:
    """Put the staged content in the place of the old one."""
    made = identity(os.fstat(staged.descriptor))
    gate()
    os.rename(str(staged.name), place.name, src_dir_fd=place.directory_fd, dst_dir_fd=place.directory_fd)
    os.fsync(place.directory_fd)
    if entry_identity(place) != made or not _is_gone(old):
        raise ChangedUnseenError
    return Answer(proof=Proof.SUCCEEDED, source="file:replaced")


def _delete(place: Place, old: _Old, gate: _Gate) -> Answer:
    """Take the entry away."""
    gate()
    os.unlink(place.name, dir_fd=place.directory_fd)
    os.fsync(place.directory_fd)
    if entry_identity(place) is not None or not _is_gone(old):
        raise ChangedUnseenError
    return Answer(proof=Proof.SUCCEEDED, source="file:deleted")


def _is_gone(old: _Old) -> bool:
    """Whether the file without a name now is the one that was compared, as it was then."""
    found = os.fstat(old.descriptor)
    return (found.st_nlink, found.st_size, found.st_mtime_ns) == (
        0,
        old.content.size,
        old.content.modified_ns,
    )
