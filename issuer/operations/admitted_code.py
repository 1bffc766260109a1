"""Third-party code that an owner admitted: found by name, digested before it runs, loaded once in a process.

Decides which files an adapter's code is, and whether it is the code that the owner wrote the digest of (OPR-02,
ADR-0020). Nothing of it is imported before its digest was compared: what was not admitted does not run.
The digest covers every file of the top-level package (or the one module) by its place in it, compiled caches aside.
It does not cover what that code imports from elsewhere, nor the interpreter. Next: `python_adapter` wraps what is made.
"""

import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from importlib.machinery import ModuleSpec, PathFinder
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec
from inspect import isclass, isfunction
from pathlib import Path
from typing import Final

from issuer.operations.declaration import RegistrationCode
from ledger.canonical import canonical_bytes, digest

__all__ = ["BYTES_MAX", "FILES_MAX", "GROUP", "Code", "CodeRefusedError", "Factory", "load_admitted"]

GROUP: Final = "permit_issuer.adapters"
"""The entry points that name adapters."""

FILES_MAX: Final = 2_000
"""Files of one adapter's package: a large client library; more is no adapter, but an application."""

BYTES_MAX: Final = 64 * 1024 * 1024
"""Bytes of all of them: read in well under a second."""

_CACHES: Final = "__pycache__"
_DOMAIN: Final = "permit-issuer/adapter-code/v1"
_FILE_DOMAIN: Final = "permit-issuer/adapter-file/v1"

Factory = Callable[[Mapping[str, str]], object]
"""Makes an adapter of its settings; an object with the methods of `contract.Adapter`, except kind and digest."""

Looked = tuple[tuple[str, int, int, int, int], ...]
"""Of each file: place, inode, size, and the instants of its last change."""


class CodeRefusedError(Exception):
    """The code was not loaded; `code` says why and `more` is one further sentence of ours, or empty."""

    def __init__(self, code: RegistrationCode, more: str = "") -> None:
        """Keep both."""
        super().__init__(str(code))
        self.code = code
        self.more = more


class Code:
    """The files of one adapter, as they are on disk at each look."""

    def __init__(self, top: str, root: Path) -> None:
        """Take the name of the top-level package or module and its folder or file."""
        self.top = top
        self._root = root
        self._known: tuple[Looked, str] | None = None

    def digest(self) -> str:
        """Return the digest (hex) of the files as they are now; they are read again only where one changed.

        Raises:
            CodeRefusedError: `adapter_unreadable`.
        """
        looked = self._look()
        if self._known is None or self._known[0] != looked:
            self._known = (looked, self._read(looked))
        return self._known[1]

    def _look(self) -> Looked:
        try:
            seen: list[tuple[str, int, int, int, int]] = []
            for place, path in self._files():
                if len(seen) == FILES_MAX:
                    raise CodeRefusedError(RegistrationCode.ADAPTER_UNREADABLE)
                found = path.stat()
                seen.append((place, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns))
        except OSError:
            seen = []
        if not seen or sum(entry[2] for entry in seen) > BYTES_MAX:
            raise CodeRefusedError(RegistrationCode.ADAPTER_UNREADABLE)
        return tuple(sorted(seen))

    def _files(self) -> Iterator[tuple[str, Path]]:
        if not self._root.is_dir():
            yield self._root.name, self._root
            return
        for folder, folders, names in os.walk(self._root, onerror=_raise):
            here = Path(folder)
            if any((here / name).is_symlink() for name in folders):
                # What stands behind it would be imported and not be read here.
                raise CodeRefusedError(RegistrationCode.ADAPTER_UNREADABLE)
            folders[:] = [name for name in folders if name != _CACHES]
            for name in names:
                yield (here / name).relative_to(self._root).as_posix(), here / name

    def _read(self, looked: Looked) -> str:
        whole = self._root.is_dir()
        try:
            files = [
                (
                    place,
                    digest(_FILE_DOMAIN, (self._root / place if whole else self._root).read_bytes()).hex(),
                )
                for place, *_rest in looked
            ]
        except OSError:
            files = []
        if not files:
            raise CodeRefusedError(RegistrationCode.ADAPTER_UNREADABLE)
        # One document for each file: a large package may be larger than one canonical document.
        lines = [canonical_bytes([self.top, os.fsencode(place).hex(), hashed]) for place, hashed in files]
        return digest(_DOMAIN, b"\n".join(lines)).hex()


def _raise(fault: OSError) -> None:
    raise fault


_loaded: Final[dict[str, str]] = {}
"""Of each top-level name that this process loaded an adapter from: the digest it had then."""

_turn: Final = threading.Lock()


def load_admitted(
    name: str, admitted: str, handed: Mapping[str, Factory], *, group: str = GROUP
) -> tuple[Factory, Code]:
    """Return the factory called `name` and its code, where its digest is the admitted one.

    Args:
        name: as the owner wrote it.
        admitted: the digest that the owner wrote.
        handed: what an embedding host brought; it goes before what is installed, and is held to the digest as well.
        group: the entry points that may name it; a sink of an audit is no adapter, and no adapter is a sink.

    Raises:
        CodeRefusedError: not found, not readable, not the admitted one, changed since it was loaded, or failing.
    """
    factory: Factory | None = handed.get(name)
    entry = None if factory is not None else _entry(name, group)
    code = _code_of(_module_of(factory) if entry is None else entry.module)
    with _turn:
        found = code.digest()
        if found != admitted:
            raise CodeRefusedError(RegistrationCode.ADAPTER_NOT_ADMITTED, _admitting(found))
        if _loaded.setdefault(code.top, found) != found:
            raise CodeRefusedError(RegistrationCode.ADAPTER_CHANGED)
        made = factory if entry is None else _imported(entry)
        if code.digest() != found or made is None:
            raise CodeRefusedError(RegistrationCode.ADAPTER_CHANGED)
    return made, code


def _admitting(found: str) -> str:
    return f'To admit the one that is there, write digest = "{found}".'


def _entry(name: str, group: str) -> EntryPoint:
    found = tuple(entry_points(group=group, name=name))
    if not found:
        raise CodeRefusedError(RegistrationCode.ADAPTER_NOT_FOUND)
    if len({entry.value for entry in found}) != 1:
        raise CodeRefusedError(RegistrationCode.ADAPTER_NOT_FOUND, "Two installed packages claim the name.")
    return found[0]


def _module_of(factory: object) -> str:
    """Return where a handed factory was written; only of functions and classes this can be told.

    Raises:
        CodeRefusedError: `adapter_unreadable`.
    """
    if isfunction(factory):
        return str(factory.__globals__.get("__name__", ""))
    if isclass(factory):
        return str(factory.__module__)
    raise CodeRefusedError(RegistrationCode.ADAPTER_UNREADABLE, "Hand over a function or a class.")


def _imported(entry: EntryPoint) -> Factory:
    try:
        made: object = import_module(entry.module)
        for attribute in filter(None, entry.attr.split(".")):
            made = getattr(made, attribute)
    except (Exception, SystemExit):  # noqa: BLE001 - whatever a third party's module does when it is imported
        made = None
    if not callable(made):
        raise CodeRefusedError(RegistrationCode.ADAPTER_FAILED)
    return made


def _code_of(module: str) -> Code:
    """Return the files of a module's top-level package without importing any of it.

    Raises:
        CodeRefusedError: `adapter_unreadable`; also for what is neither a folder nor a file.
    """
    top, *rest = module.split(".")
    if top == "__main__":
        return _file_code(top, getattr(sys.modules[top], "__file__", None))
    spec = _spec(top)
    for part in rest:
        # A namespace has no code of its own and may be shared; the first package in it is the adapter's.
        if spec is None or spec.origin is not None or spec.submodule_search_locations is None:
            break
        top = f"{top}.{part}"
        spec = PathFinder.find_spec(top, spec.submodule_search_locations)
    return _file_code(top, None if spec is None or not spec.has_location else spec.origin)


def _spec(top: str) -> ModuleSpec | None:
    try:
        return find_spec(top)
    except (ImportError, ValueError):
        return None


def _file_code(top: str, origin: str | None) -> Code:
    path = None if origin is None else Path(origin)
    if path is None or not path.is_file():
        raise CodeRefusedError(RegistrationCode.ADAPTER_UNREADABLE)
    return Code(top, path.parent if path.stem == "__init__" else path)
